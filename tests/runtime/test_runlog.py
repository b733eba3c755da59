import os
import signal
from pathlib import Path

import pytest

from agentrt.errors import DataError
from agentrt.runtime.episode import Runtime
from agentrt.runtime.events import RunStarted, Token, TurnStarted
from agentrt.runtime.result import EpisodeResult
from agentrt.runtime.runlog import EVENTS_FILE, RESULT_FILE, RunLog, read_run
from agentrt.testing import ScriptedEngine

from .conftest import MakeTeam

STARTED = RunStarted(run_id="r1", question="q", team="t", scheme="s", seed=3)
TURN = TurnStarted(turn=1, step=1, node="think", role="plan", emits="thought")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    log = RunLog.create(tmp_path / "r1", {"seed": 3, "scheme": "s"})
    log.event(STARTED)
    log.event(Token(turn=1, token_id=1, text="x"))
    log.event(TURN)
    log.close()
    log.close()
    return tmp_path / "r1"


def test_a_log_reads_back_with_its_header_and_without_tokens(folder: Path) -> None:
    header, events = read_run(folder)
    assert header["seed"] == 3
    assert header["schema_version"] == 1
    assert isinstance(header["versions"], dict)
    assert header["versions"]["langgraph"]
    assert events == [STARTED, TURN]


def test_every_line_is_on_disk_before_the_log_is_closed(tmp_path: Path) -> None:
    log = RunLog.create(tmp_path / "r2", {})
    log.event(STARTED)
    assert read_run(tmp_path / "r2").events == [STARTED]
    log.close()


def test_a_torn_last_line_is_left_out(folder: Path) -> None:
    file = folder / EVENTS_FILE
    file.write_bytes(file.read_bytes() + b'{"event": "turn_sta')
    assert read_run(folder).events == [STARTED, TURN]


def test_a_damaged_line_is_named(folder: Path) -> None:
    file = folder / EVENTS_FILE
    lines = file.read_text().splitlines()
    file.write_text("\n".join([lines[0], '{"event": "lunch"}', *lines[2:], ""]))
    with pytest.raises(DataError, match=r"events\.jsonl:2: "):
        read_run(folder)


def test_a_result_is_whole_whenever_it_is_read_and_after_its_writer_was_killed(
    make_team: MakeTeam, corpus: Path, tmp_path: Path
) -> None:
    script = ["So.", "Finish", "yes", "It is.", "right"]
    with Runtime(make_team(), engine=ScriptedEngine(script), corpus=corpus) as rt:
        result = rt.run("Who?")
    long = result.model_copy(update={"spans": result.spans * 500})
    file = tmp_path / "r3" / RESULT_FILE
    child = os.fork()
    if child == 0:
        log = RunLog.create(tmp_path / "r3", {})
        while True:
            log.result(long)
    try:
        while not file.exists():
            pass
        for _ in range(20):
            assert EpisodeResult.model_validate_json(file.read_bytes()) == long
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert EpisodeResult.model_validate_json(file.read_bytes()) == long


def test_a_folder_that_is_no_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no run folder"):
        read_run(tmp_path)
