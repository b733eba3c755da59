"""What a scheme's cost does as crews or ranks grow (PReCache, table 10): one variant of a trace over the first."""

from collections.abc import Callable
from statistics import median
from typing import NamedTuple

from agentrt.evaluate.replay.contestant import Run
from agentrt.evaluate.replay.result import Outcome


class Growth(NamedTuple):
    """Quotients of one scheme's figures over its figures on the variant `over`.

    Seconds: medians over the repeats, whose runs took turns. Rows and bytes are exact; None where `over` has none.
    """

    over: str
    ttft_s: float
    total_s: float
    prefill_rows: float | None
    neutral_rows: float | None
    kv_bytes_peak: float | None


def grown(outcome: Outcome, first: Outcome, over: str) -> Growth | None:
    """`first` is of the same scheme and context; None where one of the two is not trusted."""
    if outcome.refused or first.refused:
        return None

    def seconds(figure: Callable[[Run], float]) -> float:
        runs = zip(outcome.measured.runs, first.measured.runs, strict=True)
        return round(median(figure(ours) / figure(theirs) for ours, theirs in runs), 4)

    def exact(figure: Callable[[Run], int]) -> float | None:
        before = figure(first.measured.middle)
        return round(figure(outcome.measured.middle) / before, 4) if before else None

    return Growth(
        over,
        seconds(lambda run: run.ttft_s),
        seconds(lambda run: run.total_s),
        exact(lambda run: run.prefill_rows),
        exact(lambda run: run.neutral_rows),
        exact(lambda run: run.kv_bytes_peak),
    )
