"""One writer at a time on a run folder, whoever they are and however they die."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from agentrt.config.flow import Emits
from agentrt.errors import RunBusyError, UsageError
from agentrt.runtime.episode import Runtime
from agentrt.runtime.options import CancelToken
from agentrt.runtime.runlock import LOCK_FILE, lock_run
from agentrt.testing import ScriptedEngine

from .conftest import MakeTeam

SCRIPT = ["A.", "Search", "jaws film", "B.", "Finish", "yes", "F.", "right"]
TURNS = 4
"""After which the run below is left."""


@pytest.fixture
def open_runtime(make_team: MakeTeam, corpus: Path, tmp_path: Path) -> Callable[..., Runtime]:
    def runtime(script: Callable[[str, Emits, str], str] | list[str]) -> Runtime:
        return Runtime(make_team(), engine=ScriptedEngine(script), corpus=corpus, out=tmp_path / "runs", seed=5)

    return runtime


OpenRuntime = Callable[..., Runtime]


@pytest.fixture
def left(open_runtime: OpenRuntime, tmp_path: Path) -> Path:
    """The folder of a run that was cancelled after some turns."""
    cancel, texts = CancelToken(), iter(enumerate(SCRIPT))

    def script(adapter: str, field: Emits, so_far: str) -> str:
        at, text = next(texts)
        if at == TURNS:
            cancel.cancel()
        return text

    with open_runtime(script) as rt:
        assert rt.run("Who?", run_id="one", cancel=cancel).status == "cancelled"
    return tmp_path / "runs" / "one"


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.suffix in (".jsonl", ".json", ".sqlite")}


def test_a_run_at_work_keeps_every_other_writer_out(open_runtime: OpenRuntime, left: Path) -> None:
    texts, refused = iter(SCRIPT[TURNS:]), list[str]()

    def script(adapter: str, field: Emits, so_far: str) -> str:
        if not refused:
            before = contents(left)
            with open_runtime([]) as other:
                for attempt in (lambda: other.resume("one"), lambda: other.run("Who?", run_id="one")):
                    with pytest.raises(RunBusyError, match="wait until it ends, or stop it") as error:
                        attempt()
                    refused.append(str(error.value))
            assert contents(left) == before
        return next(texts)

    with open_runtime(script) as rt:
        assert rt.resume("one").answer == "yes"
    assert len(refused) == 2
    assert all(message.startswith(f"{left}: ") for message in refused)


def test_a_resume_that_comes_a_moment_late_does_not_go_on_with_a_finished_run(
    open_runtime: OpenRuntime, left: Path
) -> None:
    with open_runtime(SCRIPT[TURNS:]) as first, open_runtime(SCRIPT[TURNS:]) as second:
        late = second.stream_resumed("one")  # it has looked where the run stands, and has not begun
        assert first.resume("one").status == "finished"
        before = contents(left)
        with pytest.raises(UsageError, match=r"run one has ended \(finished\): fork it"):
            list(late)
    assert contents(left) == before


def test_a_lock_ends_with_its_process_killed_or_not(open_runtime: OpenRuntime, left: Path) -> None:
    child = os.fork()
    if child == 0:
        lock = lock_run(left)
        (left / "held").touch()
        time.sleep(60)
        lock.release()
        os._exit(1)
    while not (left / "held").exists():
        time.sleep(0.01)
    with open_runtime(SCRIPT[TURNS:]) as rt:
        with pytest.raises(RunBusyError, match=r"runs/one: somebody else is working"):
            rt.resume("one")
        os.kill(child, signal.SIGKILL)
        assert os.waitpid(child, 0)[1] == signal.SIGKILL
        assert (left / LOCK_FILE).exists()
        assert rt.resume("one").status == "finished"


def test_a_run_gives_its_folder_back_also_when_it_cannot_be_opened(open_runtime: OpenRuntime, left: Path) -> None:
    kept = (left / "checkpoints.sqlite").read_bytes()
    with open_runtime(SCRIPT[TURNS:]) as rt:
        late = rt.stream_resumed("one")
        (left / "checkpoints.sqlite").write_bytes(b"no database " * 99)
        with pytest.raises(UsageError, match="not a file of checkpoints"):
            list(late)
        (left / "checkpoints.sqlite").write_bytes(kept)
        assert rt.resume("one").status == "finished"


def test_a_fork_does_not_take_the_folder_of_its_source(open_runtime: OpenRuntime, left: Path) -> None:
    before = contents(left)
    with open_runtime([]) as rt, pytest.raises(UsageError, match="give it another run id"):
        rt.resume("one", at_turn=2, run_id="one")
    assert contents(left) == before
