"""What a soak was told to do, what it found, and its verdict; written after each round, so that a kill loses little."""

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from benchmarks.machine import describe
from benchmarks.soak.records import NEEDED, Happening
from benchmarks.soak.replays import Comparison
from benchmarks.soak.usage import Usage

Verdict = Literal["running", "passed", "failed"]


@dataclass(frozen=True)
class SoakPlan:
    """`seconds` of load in rounds of about `round_s`, after a warm-up. Between rounds nothing runs."""

    seconds: float = 1800.0
    round_s: float = 60.0
    patience: int = 4
    """Rounds are added, up to so many times as many, while the load has not met all it should and all is well."""
    warm_up_s: float = 120.0
    """Of the same load, not counted: pools, kernels and Python's own caches come to their size. Its end is the baseline
    of the memory."""
    workers: int = 8
    seed: int = 0
    replays: int = 96
    """At most so many episodes and as many sessions are run again, alone."""
    memory_slack_bytes: int = 16 << 20
    """So much more resident memory, beside the caches' own pages, than at the baseline is still called flat."""
    stuck_s: float = 120.0
    """A piece of work (an episode, or a few turns) that takes longer is stuck."""
    settle_s: float = 10.0
    """How long after a round threads of tools that were left behind may take to end."""

    @property
    def num_rounds(self) -> int:
        return max(1, round(self.seconds / self.round_s))


@dataclass
class Round:
    """After a round: what is left once nothing runs, and how many episodes there have been so far."""

    seconds: float
    episodes: int
    usage: Usage


@dataclass
class Report:
    """Counts, and `faults`: everything that went wrong, in words."""

    plan: SoakPlan
    counts: dict[Happening, int] = field(default_factory=lambda: dict.fromkeys(get_args(Happening), 0))
    before: Usage | None = None
    """With the engine loaded and before the first run: threads and open files must come back to it."""
    warm: Round | None = None
    """After the warm-up: memory must come back to it."""
    rounds: list[Round] = field(default_factory=list)
    compared: Comparison = field(default_factory=Comparison)
    faults: list[str] = field(default_factory=list)
    stuck: bool = False
    """Something never ended; nothing can be closed any more."""
    ended: bool = False
    machine: dict[str, object] = field(default_factory=describe)

    @property
    def verdict(self) -> Verdict:
        """Whatever else is still to be found out, one fault is enough."""
        if self.faults or self.compared.faults:
            return "failed"
        return "passed" if self.ended else "running"

    @property
    def missing(self) -> list[Happening]:
        """What the load has not met so far."""
        return [each for each in NEEDED if not self.counts[each]]

    @property
    def goes_on(self) -> bool:
        """Whether there is another round to come."""
        done = len(self.rounds)
        more = bool(self.missing) and not self.faults and done < self.plan.patience * self.plan.num_rounds
        return done < self.plan.num_rounds or more

    @property
    def grown_bytes(self) -> int:
        """Of resident memory since the warm-up; 0 before the first round has ended."""
        if self.warm is None or not self.rounds:
            return 0
        return self.rounds[-1].usage.resident_bytes - self.warm.usage.resident_bytes

    def conclude(self) -> None:
        """Judge what only shows at the end: growth, excuses, and a load that did less than it should."""
        if self.grown_bytes > self.plan.memory_slack_bytes:
            mib = [f"{each.usage.resident_bytes / 2**20:.0f}" for each in (self.warm, *self.rounds) if each]
            self.faults.append(f"memory has grown by {self.grown_bytes / 2**20:.1f} MiB; in MiB: {', '.join(mib)}")
        if self.missing:
            self.faults.append(f"the load never met: {', '.join(self.missing)}")
        self.faults += [*self.compared.too_many(), *self.compared.faults]

    def to_json(self) -> dict[str, Any]:
        """Memory in bytes, without the pages of the caches."""
        return {**asdict(self), "verdict": self.verdict, "grown_bytes": self.grown_bytes}

    def write(self, file: Path) -> None:
        """Replace `file` as a whole."""
        part = file.with_name(f"{file.name}.part")
        part.write_text(json.dumps(self.to_json(), indent=2) + "\n", encoding="utf-8")
        os.replace(part, file)
