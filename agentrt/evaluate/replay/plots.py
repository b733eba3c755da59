"""Figures of a replay: TTFT, throughput and memory against the trajectory's length (PReCache, figures 3, 5 and 6)."""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, NamedTuple

from agentrt.errors import UsageError
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


def require_matplotlib() -> None:
    """Raise UsageError with the command that installs it, where it is missing."""
    if find_spec("matplotlib") is None:
        raise UsageError("--plot draws with matplotlib, which is not installed: pip install 'agentrt[plots]'")


def draw(outcomes: Sequence[tuple[str, Outcome]], folder: Path) -> list[Path]:
    """Write three SVG files, a line for each (group, scheme); groups tell crews or ranks apart, or are empty.

    Refused outcomes are left out: their times mean nothing. Raises UsageError where none is left.
    """
    require_matplotlib()
    from matplotlib.figure import Figure

    lines: dict[str, list[Outcome]] = {}
    for group, outcome in outcomes:
        if not outcome.refused:
            label = f"{outcome.measured.label} ({group})" if group else outcome.measured.label
            lines.setdefault(label, []).append(outcome)
    if not lines:
        raise UsageError("--plot: every scheme was refused, so there is nothing to draw")
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for kind in _FIGURES:
        figure = Figure(figsize=(7, 4.5), layout="constrained")
        axes: Any = figure.subplots()
        for index, (label, found) in enumerate(lines.items()):
            points = sorted((each.measured.trace.num_tokens, _value(each, kind)) for each in found)
            style = ("-", "--", ":")[index // 10 % 3]
            axes.plot(*zip(*points, strict=True), label=label, marker="o", markersize=3, linestyle=style)
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        axes.set_xlabel("trajectory length (tokens)")
        axes.set_ylabel(kind.label)
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
        axes.legend(fontsize="x-small")
        written.append(folder / f"{kind.file}.svg")
        figure.savefig(written[-1], metadata={"Date": None})
    return written


def _value(outcome: Outcome, figure: _Figure) -> float:
    measured = outcome.measured
    source = measured if figure.key == "throughput_tok_s" else measured.middle
    return float(getattr(source, figure.key)) / figure.unit
