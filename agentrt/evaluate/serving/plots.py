"""Figures of a load test: first-token time and throughput against the rate (PReCache, figures 4 and 5)."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from agentrt.evaluate.figures import draw_lines
from agentrt.evaluate.serving.result import Point


class _Figure(NamedTuple):
    file: str
    label: str
    value: Callable[[Point], float]


_FIGURES: Final = (
    _Figure("ttft_p50", "time to first token with queueing, p50 (s)", lambda point: point.ttft_s.p50),
    _Figure("ttft_p90", "time to first token with queueing, p90 (s)", lambda point: point.ttft_s.p90),
    _Figure("ttft_p99", "time to first token with queueing, p99 (s)", lambda point: point.ttft_s.p99),
    _Figure("latency_p90", "latency of a call, p90 (s)", lambda point: point.latency_s.p90),
    _Figure("throughput", "throughput (trajectory tokens/s)", lambda point: point.throughput_tok_s),
)


def draw(points: Sequence[Point], folder: Path) -> list[Path]:
    """Write an SVG file for each figure, a line for each scheme. The bursts that measure saturation are left out."""
    rated = [point for point in points if point.rate_per_s is not None]
    schemes = dict.fromkeys(point.scheme for point in rated)
    return [
        draw_lines(
            folder / f"{figure.file}.svg",
            {
                scheme: [(point.rate_per_s or 0.0, figure.value(point)) for point in rated if point.scheme == scheme]
                for scheme in schemes
            },
            x_label=f"{rated[0].arrivals} a second",
            y_label=figure.label,
            log_y=figure.file != "throughput",
        )
        for figure in _FIGURES
    ]
