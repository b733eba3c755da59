"""Runs contestants on one trace, call by call in turn: a warm-up, then repeats. Judges nothing."""

import gc
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from agentrt.evaluate.replay.contestant import Contestant, Run
from agentrt.evaluate.replay.trace import Trace, random_contexts
from agentrt.model.progress import Report, silent


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
    runs: list[list[Run]] = [[] for _ in lanes]
    _, first = lanes[0]
    total = (repeats + 1) * len(first.calls) * len(lanes)
    for repeat in range(repeats + 1):
        contexts = random_contexts(first, vocab_size, seed + repeat)
        gc.collect()
        plays = [contestant.begin(trace, contexts, tool_wait_s) for contestant, trace in lanes]
        for index in range(len(first.calls)):
            for done, play in enumerate(plays):
                report(stage, (repeat * len(first.calls) + index) * len(lanes) + done, total)
                play.call(index)
        for found, play in zip(runs, plays, strict=True):
            run = play.end()
            if repeat:
                found.append(run)
    report(stage, total, total)
    return [Measured(each.label, trace, tuple(found)) for (each, trace), found in zip(lanes, runs, strict=True)]
