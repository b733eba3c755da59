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
    contestants: Sequence[Contestant],
    trace: Trace,
    *,
    vocab_size: int,
    repeats: int = 3,
    tool_wait_s: float = 0.0,
    seed: int = 0,
    stage: str = "replaying",
    report: Report = silent,
) -> list[Measured]:
    """Each contestant's runs, in the order given. Every repeat draws other token ids, the same for all of them.

    Within a repeat everybody does the trace's first call, then everybody the second, and so on: a machine that gets
    slower or faster meanwhile does so for all of them.
    """
    runs: dict[str, list[Run]] = {contestant.label: [] for contestant in contestants}
    total = (repeats + 1) * len(trace.calls) * len(contestants)
    for repeat in range(repeats + 1):
        contexts = random_contexts(trace, vocab_size, seed + repeat)
        gc.collect()
        plays = {contestant.label: contestant.begin(trace, contexts, tool_wait_s) for contestant in contestants}
        for index in range(len(trace.calls)):
            for done, play in enumerate(plays.values()):
                report(stage, (repeat * len(trace.calls) + index) * len(contestants) + done, total)
                play.call(index)
        for label, play in plays.items():
            run = play.end()
            if repeat:
                runs[label].append(run)
    report(stage, total, total)
    return [Measured(label, trace, tuple(found)) for label, found in runs.items()]
