"""Calls recorded to a folder and played back from it."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from agentrt_tools import (
    CallRequest,
    Cassette,
    CassetteError,
    CassetteMissError,
    Recorder,
    ToolCall,
    ToolFailed,
    ToolResult,
)

ASKED = CallRequest("Search", "offline.search", "jaws", "Who?", 0, {"page": "A", "old": 1})
CALL = ToolCall(ToolResult("Found.", {"n": 1}, {"page": None, "read": ["é"]}, ("Jaws",), miss=True), None, 2, 0.5)


def test_a_call_comes_back_as_it_was_but_takes_no_time(tmp_path: Path) -> None:
    Recorder(tmp_path / "new" / "folder").record(ASKED, CALL)
    assert Cassette(tmp_path / "new" / "folder").play(ASKED) == CALL._replace(elapsed_s=0.0)


def test_a_failure_comes_back_too(tmp_path: Path) -> None:
    failed = ToolFailed("quota", "no credits", hint="buy some", told="error", retryable=True)
    Recorder(tmp_path).record(ASKED, ToolCall(None, failed, 1, 0.5))
    call = Cassette(tmp_path).play(ASKED)
    assert call.failure is not None
    assert (str(call.failure), call.failure.told, call.retries) == (str(failed), "error", 1)
    assert call.health.failures == {"quota": 1}


def test_the_same_question_again_gets_its_own_recording(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    recorder.record(ASKED, ToolCall(None, ToolFailed("timeout", "slow"), 0, 1.0))
    recorder.record(ASKED._replace(nth=1), CALL)
    cassette = Cassette(tmp_path)
    assert cassette.play(ASKED).failure is not None
    assert cassette.play(ASKED._replace(nth=1)).result == CALL.result


def test_another_state_will_do_where_all_recordings_agree_and_keeps_what_it_had(tmp_path: Path) -> None:
    Recorder(tmp_path).record(ASKED, CALL)
    call = Cassette(tmp_path).play(ASKED._replace(state={"other": 2, "old": 3}, question="Another?"))
    assert call.result is not None
    assert call.result.state == {"other": 2, "page": None, "read": ["é"]}


def test_another_state_will_not_do_where_recordings_differ(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    recorder.record(ASKED, CALL)
    recorder.record(ASKED._replace(state={}), ToolCall(ToolResult("Other."), None, 0, 0.0))
    with pytest.raises(CassetteMissError, match=r"Search\[jaws\] of offline.search in this state"):
        Cassette(tmp_path).play(ASKED._replace(question="Another?"))


@pytest.mark.parametrize(
    ("asked", "nearest"),
    [
        (CallRequest("Search", "offline.search", "jews"), "Search[jaws] of offline.search"),
        (CallRequest("Retrieve", "offline.page", "jaws"), "Retrieve[Ohio] of offline.page"),
        (CallRequest("Search", "serper.search", "jaws"), "Search[jaws] of offline.search"),
    ],
)
def test_a_miss_shows_the_nearest_recorded_call(tmp_path: Path, asked: CallRequest, nearest: str) -> None:
    recorder = Recorder(tmp_path)
    recorder.record(ASKED, CALL)
    recorder.record(CallRequest("Retrieve", "offline.page", "Ohio"), CALL)
    with pytest.raises(CassetteMissError) as caught:
        Cassette(tmp_path).play(asked)
    assert str(caught.value).endswith(f"the nearest recorded call is {nearest}")
    assert f"no call {asked.action}[{asked.argument}]" in str(caught.value)


def test_calls_of_many_threads_are_whole_lines_and_a_torn_last_one_is_left_out(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    asked = [ASKED._replace(argument=f"q{n}") for n in range(40)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda one: recorder.record(one, CALL), asked))
    with (tmp_path / "calls.jsonl").open("a") as file:
        file.write('{"action": "Sea')
    cassette = Cassette(tmp_path)
    assert all(cassette.play(one).result == CALL.result for one in asked)


@pytest.mark.parametrize("line", ["x", "{}", json.dumps({"action": "a", "tool": "t", "argument": "x"})])
def test_a_line_that_is_no_call_is_named(tmp_path: Path, line: str) -> None:
    (tmp_path / "calls.jsonl").write_text(line + "\n")
    with pytest.raises(CassetteError, match=r"calls.jsonl:1: not a recorded call"):
        Cassette(tmp_path)


def test_a_folder_without_calls_is_no_cassette(tmp_path: Path) -> None:
    with pytest.raises(CassetteError, match="is no cassette"):
        Cassette(tmp_path / "absent")


def test_a_recording_without_a_call_is_a_cassette_that_holds_none(tmp_path: Path) -> None:
    Recorder(tmp_path / "tape")
    with pytest.raises(CassetteMissError, match="it has no call at all"):
        Cassette(tmp_path / "tape").play(ASKED)
