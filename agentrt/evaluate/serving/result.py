"""What one scheme did at one rate, as figures and as JSON."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from agentrt.evaluate.replay.trace import Trace
from agentrt.evaluate.serving.arrivals import Arrivals
from agentrt.evaluate.serving.load import Served


class Percentiles(NamedTuple):
    """Seconds, over all calls, interpolated between neighbours."""

    p50: float
    p90: float
    p99: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Percentiles":
        return cls(*(round(float(value), 4) for value in np.quantile(values, (0.5, 0.9, 0.99))))


class Point(NamedTuple):
    """`rate_per_s`: arrivals offered; None for the burst that measures saturation. `load`: of this scheme's own."""

    scheme: str
    arrivals: Arrivals
    rate_per_s: float | None
    load: float | None
    trajectories: int
    calls: int
    ttft_s: Percentiles
    latency_s: Percentiles
    throughput_tok_s: float
    completed_per_s: float
    makespan_s: float
    kv_bytes_peak: int


def point_of(
    scheme: str, arrivals: Arrivals, rate: float | None, saturation: float | None, trace: Trace, served: Served
) -> Point:
    """`saturation`: arrivals a second that the scheme completes when all arrive at once."""
    trajectories = len({call.trajectory for call in served.calls})
    arrived = len(served.calls) if arrivals == "calls" else trajectories
    return Point(
        scheme,
        arrivals,
        rate,
        None if rate is None or saturation is None else round(rate / saturation, 4),
        trajectories,
        len(served.calls),
        Percentiles.of([call.ttft_s for call in served.calls]),
        Percentiles.of([call.latency_s for call in served.calls]),
        round(trajectories * trace.num_tokens / served.makespan_s, 2),
        round(arrived / served.makespan_s, 6),
        round(served.makespan_s, 4),
        served.kv_bytes_peak,
    )


def to_record(point: Point, trace: Trace, declared: Mapping[str, Any]) -> dict[str, Any]:
    """One JSON object; its keys are stable."""
    return {
        "event": "saturation" if point.rate_per_s is None else "serve_bench",
        "trace": trace.name,
        "context": trace.context,
        **point._asdict(),
        "ttft_s": point.ttft_s._asdict(),
        "latency_s": point.latency_s._asdict(),
        "declared": dict(declared),
    }
