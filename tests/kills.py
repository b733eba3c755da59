"""Runs episodes that end by SIGKILL, each in a process of its own: `python -m tests.kills FOLDER SCHEME [OPTIONS]`.

Into FOLDER go the maps of ridge (`weights`), and under `runs` one run folder per place of death and `whole`,
the run left alone. `--every`: also one for the start of each turn, `turn1`, `turn2` and so on. `--real`: the default
backbone with the shipped adapters, in place of a tiny one.
"""

import json
import os
import signal
import sys
from collections.abc import Callable, Mapping, Set
from functools import partial
from pathlib import Path

import torch

from agentrt.config.team import Team
from agentrt.engine import Engine, EngineConfig
from agentrt.runtime.episode import Runtime
from agentrt.runtime.runlog import RESULT_FILE
from agentrt.testing import FakeTool
from agentrt_tools import Json, ToolResult
from tests.crew import SEARCHES, short_team, tiny_engine, tiny_weights
from tests.real_crew import real_backbone, real_engine, real_team
from tests.watched import Moment, Watched, WatchedBackbone

QUESTION = "Where was the director of Jaws born?"
DEATHS = {
    "first": Moment("turn", 1),
    "boundary": Moment("turn", 4),
    "unsaved": Moment("end", 3),
    "decode": Moment("token", 4, 2),
    "prefill": Moment("prefill", 3, 2),
    "tool": Moment("tool", 1),
    "ended": Moment("close", 0),
}
"""A death in a prefill is that of the first turn, from this one on, that reads in more steps: under lazy schemes one
that reads again what others wrote, else one that reads an observation."""

SMALL_STEPS, SMALLER_STEPS = EngineConfig(max_step_tokens=16), EngineConfig(max_step_tokens=8)
"""With these, an observation is read in several steps, be it of bytes or of the default backbone's tokens."""
MakeEngine = Callable[[], Engine]


class Deadly(FakeTool):
    """Answers the same to all, unless it is to die."""

    def __init__(self, name: str, tell: object = None) -> None:
        super().__init__(name)
        self._tell = tell

    def __call__(self, argument: str, state: Mapping[str, Json], *, question: str = "") -> ToolResult:
        if callable(self._tell):
            self._tell(Moment("tool", 1))
        told = f"Nothing about {argument[:9]}. It is not known here, nor to anybody who was asked about it so far."
        return ToolResult(told, state=dict(state))


def deadly_tools(tell: object = None) -> dict[str, Deadly]:
    return {name: Deadly(f"deadly.{name}", tell) for name in ("Search", "Retrieve", "Lookup")}


def small_engine(folder: Path, scheme: str) -> Engine:
    """The tiny engine, which reads a prefill in steps of a few tokens."""
    return tiny_engine(folder / "weights", scheme, kind=WatchedBackbone, config=SMALL_STEPS)


def play(team: Team, engine: MakeEngine, runs: Path, run_id: str, seed: int, death: Moment | None) -> bool:
    """Whether the episode had a tool call, if it lives to tell."""

    def tell(moment: Moment) -> None:
        later = death is not None and moment.what == death.what == "prefill" and moment.turn >= death.turn
        if moment == death or (later and moment.token == death.token):
            os.kill(os.getpid(), signal.SIGKILL)

    with (
        engine() as opened,
        Runtime(team, engine=Watched(opened, tell), tools=deadly_tools(tell), out=runs, seed=seed) as rt,
    ):
        return rt.run(QUESTION, run_id=run_id).tool_health["calls"] != 0


def status_of(work: Callable[[], bool]) -> int:
    """How a process that does the work ends: 0 if all is as it should be."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if work() else 2
        finally:
            os._exit(code)
    return os.waitpid(child, 0)[1]


def kill_all(team: Team, engine: MakeEngine, runs: Path, seed: int, deaths: Mapping[str, Moment]) -> None:
    """A run for each death. Exits with a message where one did not end by SIGKILL."""
    for run_id, death in deaths.items():
        status = status_of(lambda run_id=run_id, death=death: play(team, engine, runs, run_id, seed, death))
        if status != signal.SIGKILL:
            sys.exit(f"{run_id}: ended with {status}, not by SIGKILL")


def boundaries(runs: Path) -> dict[str, Moment]:
    """The start of every turn of the whole run."""
    usage = json.loads((runs / "whole" / RESULT_FILE).read_text())["usage"]
    return {f"turn{turn}": Moment("turn", turn) for turn in range(1, 1 + sum(u["turns"] for u in usage.values()))}


def main(folder: Path, scheme: str, options: Set[str]) -> None:
    torch.set_num_threads(1)
    runs, real = folder / "runs", "--real" in options
    team = real_team() if real else short_team(SEARCHES)
    if real:
        make = real_backbone("float32", WatchedBackbone)

        def engine() -> Engine:
            return real_engine(make(), scheme, SMALLER_STEPS)

    else:
        tiny_weights(scheme)  # once, by a process that lives to clear up
        engine = partial(small_engine, folder, scheme)

    def calls_a_tool(seed: int) -> bool:
        return status_of(lambda: play(team, engine, runs, "whole", seed, None)) == 0

    seed = next(seed for seed in range(20) if calls_a_tool(seed))
    kill_all(team, engine, runs, seed, {**DEATHS, **(boundaries(runs) if "--every" in options else {})})


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], set(sys.argv[3:]))
