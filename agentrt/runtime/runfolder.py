"""The folder of one run: what happened (`runlog`) and where it stands (`checkpoints`)."""

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import NamedTuple, Self

from agentrt.errors import UsageError
from agentrt.runtime.checkpoints import Checkpoint, Checkpoints
from agentrt.runtime.events import RunResumed, RunStarted
from agentrt.runtime.graph import Graph
from agentrt.runtime.runlog import RunLog, first_turns
from agentrt.runtime.saved import FoundRun
from agentrt_tools import Json


class RunFolder(NamedTuple):
    """Open for writing."""

    log: RunLog
    checkpoints: Checkpoints

    @classmethod
    def create(cls, folder: Path, header: Mapping[str, Json]) -> Self:
        """A folder for a new run, whatever was there."""
        return cls(RunLog.create(folder, header), Checkpoints.create(folder))

    @classmethod
    def reopen(cls, folder: Path) -> Self:
        """The folder of a run that is to go on."""
        checkpoints = Checkpoints.open(folder)
        return cls(RunLog.reopen(folder), checkpoints)

    @classmethod
    def fork(
        cls, folder: Path, header: Mapping[str, Json], started: RunStarted, run: FoundRun, chosen: Checkpoint
    ) -> Self:
        """A folder for a new run that begins with a checkpoint of `run`, and with the events before it."""
        made = cls.create(folder, header)
        with closing(Checkpoints.open(run.folder)) as source:
            made.checkpoints.begin_with(source, chosen)
        made.log.event(started)
        turns, observations = chosen.state["turns"], len(chosen.state["observations"])
        for event in first_turns(run.logged.standing(), turns, observations):
            if not isinstance(event, RunStarted | RunResumed):
                made.log.event(event)
        return made

    def close(self) -> None:
        self.log.close()
        self.checkpoints.close()


def place_to_go_on(run: FoundRun, graph: Graph, at_turn: int | None) -> Checkpoint | None:
    """Where a run goes on: after `at_turn` turns, or where it was left; None: it had not begun.

    Raises UsageError where nothing comes after that, or the run never had so many turns, DataError without checkpoints.
    """
    with closing(Checkpoints.open(run.folder)) as saved:
        found = saved.last(graph) if at_turn is None else saved.at_turn(graph, at_turn)
    if found is not None and found.ended:
        status = found.state["status"] or "finished"
        what = f"run {run.saved.run_id} has ended ({status})"
        raise UsageError(f"{what}: fork it with --at-turn N" if at_turn is None else f"{what} at turn {at_turn}")
    return found
