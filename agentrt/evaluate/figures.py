"""One way of drawing lines into an SVG file. Knows matplotlib, not what is drawn."""

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from agentrt.errors import UsageError


def require_matplotlib() -> None:
    """Raise UsageError with the command that installs it, where it is missing."""
    if find_spec("matplotlib") is None:
        raise UsageError("--plot draws with matplotlib, which is not installed: pip install 'agentrt[plots]'")


def draw_lines(
    file: Path,
    lines: Mapping[str, Sequence[tuple[float, float]]],
    *,
    x_label: str,
    y_label: str,
    log_x: bool = False,
    log_y: bool = False,
) -> Path:
    """Write a figure with one line for each label, through its points from left to right; makes the folder."""
    require_matplotlib()
    from matplotlib.figure import Figure

    file.parent.mkdir(parents=True, exist_ok=True)
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes: Any = figure.subplots()
    for index, (label, points) in enumerate(lines.items()):
        style = ("-", "--", ":")[index // 10 % 3]
        axes.plot(*zip(*sorted(points), strict=True), label=label, marker="o", markersize=3, linestyle=style)
    if log_x:
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    if log_y:
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.grid(alpha=0.3)
    axes.legend(fontsize="x-small")
    figure.savefig(file, metadata={"Date": None})
    return file
