"""Episodes recorded and replayed: the same tokens without corpus, network or key."""

from pathlib import Path

import pytest

from agentrt.errors import DataError, ToolHealthError, UsageError
from agentrt.runtime.episode import Runtime
from agentrt.testing import FakeTool, ScriptedEngine
from agentrt_tools import ToolFailed

from .conftest import MakeTeam

SCRIPT = [
    *("A.", "Search", "jaws film", "B.", "Retrieve", "Jaws (film)", "C.", "Lookup", "shark", "D.", "Lookup", "shark"),
    *("E.", "Finish", "shark", "F.", "right"),
]


def test_a_replayed_episode_has_the_tokens_of_the_recorded_one_and_needs_no_corpus(
    make_team: MakeTeam, corpus: Path, tmp_path: Path
) -> None:
    with Runtime(make_team(), engine=ScriptedEngine(SCRIPT), corpus=corpus, record=tmp_path / "tape") as rt:
        recorded = rt.run("Who?")
    corpus.unlink()
    with Runtime(make_team(), engine=ScriptedEngine(SCRIPT), cassette=tmp_path / "tape") as rt:
        replayed = rt.run("Who?")
    assert replayed.token_ids == recorded.token_ids
    assert replayed.status == recorded.status == "finished"
    assert replayed.tool_health == recorded.tool_health
    assert recorded.tool_health["misses"] == 1
    assert replayed.timing.tools_s == 0.0


def test_a_failure_that_passed_is_replayed_in_its_order(make_team: MakeTeam, corpus: Path, tmp_path: Path) -> None:
    class Flaky(FakeTool):
        def __call__(self, argument, state, *, question=""):  # type: ignore[no-untyped-def]  # as its base
            self.answers = {"jaws": "A film." if self.calls else ToolFailed("quota", "none left")}
            return super().__call__(argument, state, question=question)

    script = ["A.", "Search", "jaws", "B.", "Search", "jaws", "C.", "Finish", "film", "D.", "right"]
    tools = {"Search": Flaky("fake.search")}
    with Runtime(
        make_team(), engine=ScriptedEngine(script), corpus=corpus, tools=tools, record=tmp_path / "tape"
    ) as rt:
        recorded = rt.run("Who?")
    with Runtime(make_team(), engine=ScriptedEngine(script), tools=tools, cassette=tmp_path / "tape") as rt:
        replayed = rt.run("Who?")
    assert [action.observation for action in replayed.actions[:2]] == [
        "Search failed (quota). Try another action.",
        "A film.",
    ]
    assert replayed.token_ids == recorded.token_ids
    assert replayed.tool_health["failures"] == {"quota": 1}


def test_a_call_that_was_not_recorded_breaks_the_run_and_shows_the_nearest(
    make_team: MakeTeam, corpus: Path, tmp_path: Path
) -> None:
    with Runtime(make_team(), engine=ScriptedEngine(SCRIPT), corpus=corpus, record=tmp_path / "tape") as rt:
        rt.run("Who?")
    other = ["A.", "Search", "jaws films"]
    with (
        Runtime(make_team(), engine=ScriptedEngine(other), cassette=tmp_path / "tape") as rt,
        pytest.raises(DataError, match=r"nearest recorded call is Search\[jaws film\] of offline.search") as caught,
    ):
        rt.run("Who?")
    assert caught.value.exit_code == 2


def test_a_cassette_that_is_none_or_two_wishes_at_once_are_refused_at_the_start(
    make_team: MakeTeam, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match="is no cassette"):
        Runtime(make_team(), engine=ScriptedEngine([]), cassette=tmp_path / "absent")
    with pytest.raises(UsageError, match="--record or --cassette"):
        Runtime(make_team(), engine=ScriptedEngine([]), cassette=tmp_path, record=tmp_path)


def test_a_tool_without_its_key_is_refused_before_anything_is_loaded(
    make_team: MakeTeam, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SERPER_API_KEY", raising=False)
    monkeypatch.chdir(tmp_path)
    team = make_team(("{use: offline.search, k: 1, snippet_chars: 60}", "{use: serper.search}"))
    with pytest.raises(ToolHealthError, match=r"Search \(serper\.search\) needs SERPER_API_KEY") as caught:
        Runtime(team, corpus=corpus)
    assert caught.value.exit_code == 4
    Runtime(team, corpus=corpus, tools={"Search": FakeTool("fake")}).close()
    monkeypatch.setenv("SERPER_API_KEY", "sk-1")
    Runtime(team, corpus=corpus).close()
