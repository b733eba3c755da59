"""Short soaks of the short team on a tiny model."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from agentrt import EngineConfig, Runtime, Team
from agentrt.config.team import Override
from agentrt.engine import Engine
from agentrt.model.backbone import Backbone
from benchmarks.soak.report import Report, SoakPlan
from benchmarks.soak.run import soak
from benchmarks.soak.tool import HangingTool, patient
from tests.crew import short_team, tiny_engine

QUESTIONS = ("Where was she born?", "Which came first?", "Who wrote it?", "What is the capital?")
LIMITS: dict[str, Any] = {"kv_budget_tokens": 1000, "max_waiting": 3, "room_timeout_s": 0.2, "segment_slots": 256}
"""Room for some of the workers only, and few turns that may wait."""


def soak_team() -> Team:
    """The short team; a random model's arguments are words of the question, so its tool calls are well formed."""
    words = {"span_of": "question"}
    changes = [
        Override(("flow", "nodes", "argue", "constrain", name), words, "the test") for name in ("Search", "Lookup")
    ]
    return short_team(*changes, *patient(short_team()))


def _no_change(engine: Engine, tools: dict[str, HangingTool]) -> None:
    pass


@contextmanager
def soaked(
    folder: Path,
    plan: SoakPlan,
    *,
    scheme: str = "rebase_shared:auto",
    kind: type[Backbone] = Backbone,
    hang_every: int = 2,
    change: Callable[[Engine, dict[str, Any]], object] = _no_change,
    save: Callable[[Report], None] = lambda report: None,
) -> Iterator[Report]:
    """The report of a soak; engine and runtime are closed after the block. `change` may touch the engine and wrap its
    tools before the soak."""
    team = soak_team()
    tools: dict[str, Any] = {name: HangingTool(name, every=hang_every, hang_s=0.8) for name in team.tools}
    with tiny_engine(folder / "model", scheme, kind=kind, config=EngineConfig(**LIMITS)) as engine:
        change(engine, tools)
        with Runtime(team, engine=engine, tools=tools, out=folder / "runs") as runtime:
            yield soak(runtime, QUESTIONS, plan, folders=folder / "runs", save=save)
