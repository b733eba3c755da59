"""The folder of one run: what happened (`runlog`) and where it stands (`checkpoints`)."""

from collections.abc import Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from typing import NamedTuple, Self

from filelock import FileLock

from agentrt.errors import UsageError
from agentrt.runtime.checkpoints import Checkpoint, Checkpoints
from agentrt.runtime.events import RunResumed, RunStarted
from agentrt.runtime.graph import Graph
from agentrt.runtime.runlock import lock_run
from agentrt.runtime.runlog import RunLog, first_turns, read_result
from agentrt.runtime.saved import FoundRun
from agentrt_tools import Json


class RunFolder(NamedTuple):
    """Open for writing, and locked against every other writer."""

    lock: FileLock
    log: RunLog
    checkpoints: Checkpoints

    @classmethod
    def create(cls, folder: Path, header: Mapping[str, Json]) -> Self:
        """A folder for a new run, whatever was there. Raises RunBusyError, before anything in it changes."""
        with ExitStack() as undo:
            lock = lock_run(folder)
            undo.callback(lock.release)
            checkpoints = Checkpoints.create(folder)  # first: no death leaves a new header with an old run's states
            undo.callback(checkpoints.close)
            made = cls(lock, RunLog.create(folder, header), checkpoints)
            undo.pop_all()
        return made

    @classmethod
    def reopen(cls, run: FoundRun, graph: Graph) -> Self:
        """The folder of a run that is to go on.

        Raises RunBusyError, or UsageError where the run has ended meanwhile, before anything in it changes.
        """
        with ExitStack() as undo:
            lock = lock_run(run.folder)
            undo.callback(lock.release)
            place_to_go_on(run, graph, None)
            opened = cls(lock, RunLog.reopen(run.folder), Checkpoints.open(run.folder))
            undo.pop_all()
        return opened

    @classmethod
    def fork(
        cls, folder: Path, header: Mapping[str, Json], started: RunStarted, run: FoundRun, chosen: Checkpoint
    ) -> Self:
        """A folder for a new run that begins with a checkpoint of `run`, and with the events before it.

        Raises UsageError where both are one folder, RunBusyError where the new one is in use.
        """
        if folder.resolve() == run.folder.resolve():
            raise UsageError(f"{folder}: a fork needs a folder of its own; give it another run id")
        with ExitStack() as undo:
            made = cls.create(folder, header)
            undo.callback(made.close)
            with closing(Checkpoints.open(run.folder)) as source:
                made.checkpoints.begin_with(source, chosen)
            made.log.event(started)
            turns, observations = chosen.state["turns"], len(chosen.state["observations"])
            for event in first_turns(run.logged.standing(), turns, observations):
                if not isinstance(event, RunStarted | RunResumed):
                    made.log.event(event)
            undo.pop_all()
        return made

    def close(self) -> None:
        self.log.close()
        self.checkpoints.close()
        self.lock.release()


def place_to_go_on(run: FoundRun, graph: Graph, at_turn: int | None) -> Checkpoint | None:
    """Where a run goes on: after `at_turn` turns, or where it was left; None: it had not begun.

    A flow that has ended and whose result was never written is left to get it. Raises UsageError where nothing comes
    after that, or the run never had so many turns, DataError without checkpoints.
    """
    with closing(Checkpoints.open(run.folder)) as saved:
        found = saved.last(graph) if at_turn is None else saved.at_turn(graph, at_turn)
    if found is not None and found.ended:
        status = found.state["status"] or "finished"
        what = f"run {run.saved.run_id} has ended ({status})"
        if at_turn is not None:
            raise UsageError(f"{what} at turn {at_turn}")
        result = read_result(run.folder)
        if result is not None and result.status == status:  # another status is of an interruption before the end
            raise UsageError(f"{what}: fork it with --at-turn N")
    return found
