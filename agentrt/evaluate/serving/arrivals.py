"""When trajectories or calls arrive. Open loop: arrivals never wait for what was served."""

import random
from collections.abc import Sequence
from typing import Literal

Arrivals = Literal["trajectories", "calls"]
"""trajectories: they arrive at random (Poisson), and each call follows the one before it. calls: call k of all arrives
at k / rate even if the call before it still runs, as the PReCache paper's harness sends them."""

Times = tuple[float | None, ...]
"""For each call of one trajectory the seconds after the start; None: when the call before it has ended."""


def arrival_times(arrivals: Arrivals, rate: float | None, trajectories: int, calls: int, seed: int) -> Sequence[Times]:
    """The times of each trajectory of `calls` calls. `rate`: arrivals a second; None: all trajectories at once."""
    follow = (None,) * (calls - 1)
    if rate is None:
        return [(0.0, *follow)] * trajectories
    if arrivals == "calls":
        return [tuple((t * calls + k) / rate for k in range(calls)) for t in range(trajectories)]
    rng, now, times = random.Random(seed), 0.0, list[Times]()
    for _ in range(trajectories):
        times.append((now, *follow))
        now += rng.expovariate(rate)
    return times
