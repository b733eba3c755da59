"""Figures of a replay: TTFT, throughput and memory against the trajectory's length (PReCache, figures 3, 5 and 6)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from agentrt.errors import UsageError
from agentrt.evaluate.figures import draw_lines, require_matplotlib
from agentrt.evaluate.replay.result import Outcome


class _Figure(NamedTuple):
    file: str
    label: str
    key: str
    unit: float


_FIGURES: Final = (
    _Figure("ttft", "time to first token, sum over calls (s)", "ttft_s", 1.0),
    _Figure("throughput", "throughput (tokens/s)", "throughput_tok_s", 1.0),
    _Figure("memory", "peak KV memory (MiB)", "kv_bytes_peak", 2.0**20),
)


def draw(outcomes: Sequence[tuple[str, Outcome]], folder: Path) -> list[Path]:
    """Write three SVG files, a line for each (group, scheme); groups tell crews or ranks apart, or are empty.

    Refused outcomes are left out: their times mean nothing. Raises UsageError where none is left.
    """
    require_matplotlib()
    lines: dict[str, list[Outcome]] = {}
    for group, outcome in outcomes:
        if not outcome.refused:
            label = f"{outcome.measured.label} ({group})" if group else outcome.measured.label
            lines.setdefault(label, []).append(outcome)
    if not lines:
        raise UsageError("--plot: every scheme was refused, so there is nothing to draw")
    return [
        draw_lines(
            folder / f"{kind.file}.svg",
            {
                label: [(each.measured.trace.num_tokens, _value(each, kind)) for each in found]
                for label, found in lines.items()
            },
            x_label="trajectory length (tokens)",
            y_label=kind.label,
            log_x=True,
        )
        for kind in _FIGURES
    ]


def _value(outcome: Outcome, figure: _Figure) -> float:
    measured = outcome.measured
    source = measured if figure.key == "throughput_tok_s" else measured.middle
    return float(getattr(source, figure.key)) / figure.unit
