"""What a replay is asked for, and the runs that makes: one for each crew or rank of the trace, else one."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from agentrt.config.trace import TraceConfig
from agentrt.errors import UsageError
from agentrt.evaluate.replay.adapters import RandomAdapters
from agentrt.evaluate.replay.entrants import parse_schemes
from agentrt.evaluate.replay.trace import build_trace


@dataclass(frozen=True)
class ReplayPlan:
    """What to replay. `adapters`: peft folders by agent, or None for random ones; `contexts` () = the trace's own.

    `ride_rows`: rows of `rebase_shared:auto` that may ride in a decode step; None = measured once, at the start.
    """

    trace: TraceConfig
    name: str
    schemes: str = "core"
    contexts: tuple[int, ...] = ()
    adapters: Mapping[str, Path] | None = None
    adapter_source: str = ""
    random: RandomAdapters = field(default_factory=RandomAdapters)
    repeats: int = 3
    tool_wait_s: float = 0.0
    ride_rows: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.repeats < 1:
            raise UsageError(f"--repeats {self.repeats}: at least 1")
        if self.tool_wait_s < 0:
            raise UsageError(f"--tool-wait {self.tool_wait_s}: seconds, 0 or more")
        if self.adapters is not None and (self.trace.crews or self.trace.ranks):
            raise UsageError(f"--trace {self.name} makes adapters of its own: it cannot take a team's")


class Variant(NamedTuple):
    """One run of a trace. `group` tells variants apart (empty for the only one); `labels`: schemes, spelled out."""

    group: str
    agents: tuple[str, ...]
    random: RandomAdapters
    labels: tuple[str, ...]


def variants(plan: ReplayPlan) -> list[Variant]:
    """One for each crew (unless n of the random adapters fixes it) or rank; else one.

    Raises SchemeError or UsageError for schemes that do not exist.
    """
    config, random = plan.trace, plan.random
    if config.targets is not None:
        random = replace(random, targets=config.targets)
    if config.crews:
        crews = config.crews if random.n is None else (random.n,)
        found = [(f"N={crew}", tuple(f"agent{i + 1}" for i in range(crew)), random) for crew in crews]
    elif config.ranks:
        found = [(f"r={r}", config.agents, replace(random, r=r)) for r in config.ranks]
    else:
        found = [("", config.agents, random)]
    return [
        Variant(group, agents, each, tuple(parse_schemes(plan.schemes, build_trace(config, "", 1, agents).calls)))
        for group, agents, each in found
    ]
