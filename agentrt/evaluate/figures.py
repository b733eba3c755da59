"""One way of drawing lines into an SVG or PNG file. Knows matplotlib, not what is drawn."""

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from agentrt.errors import UsageError


class Panel(NamedTuple):
    """Axes with one line for each label, through its points from left to right."""

    title: str
    x_label: str
    y_label: str
    lines: Mapping[str, Sequence[tuple[float, float]]]


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
    """Write a figure of one panel; makes the folder."""
    return _draw(file, [Panel("", x_label, y_label, lines)], 1, log_x=log_x, log_y=log_y)


def draw_panels(file: Path, panels: Sequence[Panel], *, columns: int) -> Path:
    """Write a figure of several panels, row by row; makes the folder."""
    return _draw(file, panels, columns)


def _draw(file: Path, panels: Sequence[Panel], columns: int, *, log_x: bool = False, log_y: bool = False) -> Path:
    require_matplotlib()
    from matplotlib.figure import Figure

    file.parent.mkdir(parents=True, exist_ok=True)
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(7 * columns, 4.5 * rows), layout="constrained")
    grid: Any = figure.subplots(rows, columns, squeeze=False)
    for axes, panel in zip(grid.flat, panels, strict=False):
        for index, (label, points) in enumerate(panel.lines.items()):
            style = ("-", "--", ":")[index // 10 % 3]
            axes.plot(*zip(*sorted(points), strict=True), label=label, marker="o", markersize=3, linestyle=style)
        if log_x:
            axes.set_xscale("log", base=2)
            axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        if log_y:
            axes.set_yscale("log")
        else:
            axes.set_ylim(bottom=0)
        axes.set_title(panel.title)
        axes.set_xlabel(panel.x_label)
        axes.set_ylabel(panel.y_label)
        axes.grid(alpha=0.3)
        axes.legend(fontsize="x-small")
    figure.savefig(file, metadata={"Date": None} if file.suffix == ".svg" else None)
    return file
