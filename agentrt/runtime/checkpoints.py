"""The states of one episode in its run folder: `checkpoints.sqlite`, one checkpoint after every node of the flow.

LangGraph writes them and reads them; each is on disk before the next node starts.
"""

import sqlite3
from pathlib import Path
from typing import Final, NamedTuple, Self, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.sqlite import SqliteSaver

from agentrt.errors import DataError, UsageError
from agentrt.runtime.graph import Graph
from agentrt.runtime.state import EpisodeState

CHECKPOINTS_FILE: Final = "checkpoints.sqlite"
_THREAD: Final = "episode"


class Checkpoint(NamedTuple):
    """A state, its place in the file, and whether the flow had ended there."""

    state: EpisodeState
    config: RunnableConfig
    ended: bool


class Checkpoints:
    """One file. May be used from any thread, by one process at a time; closed twice."""

    def __init__(self, file: Path) -> None:
        self._connection = sqlite3.connect(file, check_same_thread=False)
        self._saver = SqliteSaver(self._connection)
        try:
            self._saver.setup()
            # Every commit leaves the program, though not at once the machine's own buffers.
            self._connection.execute("PRAGMA synchronous=NORMAL")
        except sqlite3.DatabaseError as error:
            self._connection.close()
            raise DataError(f"{file}: not a file of checkpoints ({error})") from error
        self.config: RunnableConfig = {"configurable": {"thread_id": _THREAD, "checkpoint_ns": ""}}

    @classmethod
    def create(cls, folder: Path) -> Self:
        """An empty file, whatever was there."""
        folder.mkdir(parents=True, exist_ok=True)
        for file in folder.glob(f"{CHECKPOINTS_FILE}*"):
            file.unlink()
        return cls(folder / CHECKPOINTS_FILE)

    @classmethod
    def open(cls, folder: Path) -> Self:
        """Those of a run folder. Raises DataError where there are none."""
        file = folder / CHECKPOINTS_FILE
        if not file.is_file():
            raise DataError(f"{folder} cannot be resumed: it has no {CHECKPOINTS_FILE}")
        return cls(file)

    def attach(self, graph: Graph) -> Graph:
        """The graph, writing its checkpoints here."""
        return graph.copy({"checkpointer": self._saver})

    def last(self, graph: Graph) -> Checkpoint | None:
        """None if the run ended before it had asked its question."""
        found = self.attach(graph).get_state(self.config)
        if "turns" not in found.values:
            return None
        return Checkpoint(cast(EpisodeState, found.values), found.config, not found.next)

    def at_turn(self, graph: Graph, turn: int) -> Checkpoint:
        """The first state with so many turns. Raises UsageError where the run never had one."""
        most = 0
        chosen = None
        for found in self.attach(graph).get_state_history(self.config):
            most = max(most, found.values.get("turns", 0))
            if found.values.get("turns") == turn:
                chosen = Checkpoint(cast(EpisodeState, found.values), found.config, not found.next)
        if chosen is None:
            raise UsageError(f"--at-turn {turn}: the run has turns 0 to {most}")
        return chosen

    def begin_with(self, other: "Checkpoints", checkpoint: Checkpoint) -> None:
        """Take over one checkpoint of another run, as the first of this one."""
        found = other._saver.get_tuple(checkpoint.config)
        assert found is not None
        self._saver.put(self.config, found.checkpoint, found.metadata, found.checkpoint["channel_versions"])

    def close(self) -> None:
        self._connection.close()
