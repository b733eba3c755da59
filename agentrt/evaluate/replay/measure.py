"""Runs contestants on one trace, call by call in turn: a short warm-up, then repeats. Judges nothing."""

import gc
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from agentrt.evaluate.replay.contestant import Contestant, Run
from agentrt.evaluate.replay.trace import Trace, random_contexts
from agentrt.model.progress import Report, silent

WARM_CALLS: Final = 5
WARM_DECODE: Final = 2
"""The warm-up: the first calls, with so many decoded tokens each. It compiles, allocates and fills caches."""


@dataclass(frozen=True)
class Measured:
    """All timed replays of one contestant on one trace."""

    label: str
    trace: Trace
    runs: tuple[Run, ...]

    @property
    def middle(self) -> Run:
        """The median of each figure."""
        columns = zip(*self.runs, strict=True)
        return Run(*(type(column[0])(median(column)) for column in columns))

    @property
    def throughput_tok_s(self) -> float:
        """Tokens of the trajectory per second of wall time, everything included."""
        return self.trace.num_tokens / self.middle.total_s


def measure(
    lanes: Sequence[tuple[Contestant, Trace]],
    *,
    vocab_size: int,
    repeats: int = 3,
    tool_wait_s: float = 0.0,
    seed: int = 0,
    stage: str = "replaying",
    report: Report = silent,
) -> list[Measured]:
    """Runs of each contestant on its trace, in the order given. The traces differ in who acts, not in lengths.

    Every repeat draws other token ids, the same for all. Within a repeat everybody does the first call, then everybody
    the second, and so on: a machine that gets slower or faster meanwhile does so for all of them.
    """
    warm = [(each, trace.prefix(WARM_CALLS, max(c.context for c in trace.calls), WARM_DECODE)) for each, trace in lanes]
    rounds = [warm, *[list(lanes)] * repeats]
    done, total = 0, sum(len(trace.calls) for entries in rounds for _, trace in entries)
    runs: list[list[Run]] = []
    for number, entries in enumerate(rounds):
        calls = entries[0][1].calls
        contexts = random_contexts(entries[0][1], vocab_size, seed + number)
        gc.collect()
        plays = [each.begin(trace, contexts, tool_wait_s if number else 0.0) for each, trace in entries]
        for index in range(len(calls)):
            for play in plays:
                report(stage, done, total)
                play.call(index)
                done += 1
        runs.append([play.end() for play in plays])
    report(stage, total, total)
    timed = zip(*runs[1:], strict=True)
    return [Measured(each.label, trace, found) for (each, trace), found in zip(lanes, timed, strict=True)]
