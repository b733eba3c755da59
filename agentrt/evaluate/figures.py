"""One way of drawing into an SVG or PNG file, and lines on it. Knows matplotlib, not what is drawn."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
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


@contextmanager
def canvas(file: Path, rows: int, columns: int, *, size: tuple[float, float]) -> Iterator[Iterable[Any]]:
    """Axes row by row, to draw on; what was drawn is then written to `file`, the same bytes for the same SVG.

    Makes the folder. `size` is width and height in inches. Raises UsageError without matplotlib.
    """
    require_matplotlib()
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    file.parent.mkdir(parents=True, exist_ok=True)
    figure = Figure(figsize=size, layout="constrained")
    grid: Any = figure.subplots(rows, columns, squeeze=False)
    yield grid.flat
    with rc_context({"svg.hashsalt": file.stem}):
        figure.savefig(file, metadata={"Date": None} if file.suffix == ".svg" else None)


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
    rows = -(-len(panels) // columns)
    with canvas(file, rows, columns, size=(7 * columns, 4.5 * rows)) as grid:
        _fill(grid, panels, log_x=log_x, log_y=log_y)
    return file


def _fill(grid: Iterable[Any], panels: Sequence[Panel], *, log_x: bool, log_y: bool) -> None:
    for axes, panel in zip(grid, panels, strict=False):
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
