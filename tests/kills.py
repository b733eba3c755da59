"""Runs episodes that end by SIGKILL, each in a process of its own: `python -m tests.kills FOLDER SCHEME`.

Into FOLDER go the maps of ridge (`weights`), and under `runs` one run folder per place of death and `whole`,
the run left alone.
"""

import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

import torch

from agentrt.runtime.episode import Runtime
from agentrt.testing import FakeTool
from agentrt_tools import Json, ToolResult
from tests.crew import SEARCHES, short_team, tiny_engine, tiny_weights
from tests.watched import Moment, Watched

QUESTION = "Where was the director of Jaws born?"
DEATHS = {
    "first": Moment("turn", 1),
    "boundary": Moment("turn", 4),
    "unsaved": Moment("end", 3),
    "decode": Moment("token", 4, 2),
    "tool": Moment("tool", 1),
}


class Deadly(FakeTool):
    """Answers the same to all, unless it is to die."""

    def __init__(self, name: str, tell: object = None) -> None:
        super().__init__(name)
        self._tell = tell

    def __call__(self, argument: str, state: Mapping[str, Json], *, question: str = "") -> ToolResult:
        if callable(self._tell):
            self._tell(Moment("tool", 1))
        return ToolResult(f"Nothing about {argument[:9]}.", state=dict(state))


def play(folder: Path, scheme: str, run_id: str, seed: int, death: Moment | None) -> bool:
    """Whether the episode had a tool call, if it lives to tell."""

    def tell(moment: Moment) -> None:
        if moment == death:
            os.kill(os.getpid(), signal.SIGKILL)

    tools = {name: Deadly(f"deadly.{name}", tell) for name in ("Search", "Retrieve", "Lookup")}
    with (
        tiny_engine(folder / "weights", scheme) as engine,
        Runtime(short_team(SEARCHES), engine=Watched(engine, tell), tools=tools, out=folder / "runs", seed=seed) as rt,
    ):
        return rt.run(QUESTION, run_id=run_id).tool_health["calls"] != 0


def status_of(folder: Path, scheme: str, run_id: str, seed: int, death: Moment | None) -> int:
    """How a process that plays the episode ends: 0 if all is as it should be."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if play(folder, scheme, run_id, seed, death) else 2
        finally:
            os._exit(code)
    return os.waitpid(child, 0)[1]


def main(folder: Path, scheme: str) -> None:
    torch.set_num_threads(1)
    tiny_weights(scheme)  # once, by a process that lives to clear up
    seed = next(seed for seed in range(20) if status_of(folder, scheme, "whole", seed, None) == 0)
    for run_id, death in DEATHS.items():
        status = status_of(folder, scheme, run_id, seed, death)
        if status != signal.SIGKILL:
            sys.exit(f"{scheme}, {run_id}: ended with {status}, not by SIGKILL")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
