"""Intervals for means of few, uneven numbers, by resampling."""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

RESAMPLES: Final = 10_000
_AT_ONCE: Final = 100


class Interval(NamedTuple):
    low: float
    high: float


def bootstrap_mean(values: Sequence[float], *, seed: int = 0) -> Interval | None:
    """The 95 % percentile interval of the mean over RESAMPLES resamples; None for fewer than two values.

    Values must be independent of each other: average repeats of a question first.
    """
    if len(values) < 2:
        return None
    array, rng = np.asarray(values, dtype=np.float64), np.random.default_rng(seed)
    share = np.full(len(array), 1 / len(array))
    means = [
        rng.multinomial(len(array), share, size=_AT_ONCE) @ array / len(array) for _ in range(RESAMPLES // _AT_ONCE)
    ]
    low, high = np.quantile(np.concatenate(means), (0.025, 0.975))
    return Interval(float(low), float(high))
