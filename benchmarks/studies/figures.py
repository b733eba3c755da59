"""Figures of what the studies found: `python -m benchmarks.studies.figures --out docs/figures`.

From `study-schemes*.json` a score with its interval for every scheme, from `drift-*.json` the divergence of every
scheme by role. Nothing is measured here.
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from agentrt.evaluate.figures import canvas
from benchmarks.studies.harness import RESULTS


class Bar(NamedTuple):
    """A point with its interval."""

    label: str
    value: float
    low: float
    high: float


_METRICS: Final = ("em", "accuracy")


def scores(study: Mapping[str, Any]) -> dict[str, list[Bar]]:
    """By benchmark, the first metric of every row of study (a), in its order."""
    found: dict[str, list[Bar]] = {}
    for key, row in study["rows"].items():
        benchmark, _, scheme = key.partition(" ")
        metric = next((name for name in _METRICS if name in row.get("metrics", {})), None)
        if metric is not None:
            bars = found.setdefault(f"{benchmark}, {metric}, n = {row['questions']}", [])
            bars.append(Bar(scheme, row["metrics"][metric], *row["ci95"][metric]))
    return found


def divergences(drift: Mapping[str, Any]) -> dict[str, list[Bar]]:
    """KL against non_shared of every scheme, by role."""
    found: dict[str, list[Bar]] = {}
    for scheme in drift["schemes"]:
        for role, each in {"all roles": scheme["kl"], **scheme["by_role"]}.items():
            low, high = each["ci95"] or (each["mean"], each["mean"])
            found.setdefault(f"KL, {role}", []).append(Bar(scheme["scheme"], each["mean"], low, high))
    return found


def draw(file: Path, panels: Mapping[str, Sequence[Bar]]) -> Path:
    """A panel a title, a line a label, from the top; makes the folder. Raises UsageError without matplotlib."""
    height = 1.2 + 0.28 * max(len(bars) for bars in panels.values())
    with canvas(file, 1, len(panels), size=(4.2 * len(panels), height)) as grid:
        for axes, (title, bars) in zip(grid, panels.items(), strict=True):
            lines = list(range(len(bars)))
            values = [bar.value for bar in bars]
            sides = [[bar.value - bar.low for bar in bars], [bar.high - bar.value for bar in bars]]
            axes.errorbar(values, lines, xerr=sides, fmt="o", markersize=4, capsize=2)
            axes.set_yticks(lines, [bar.label for bar in bars], fontsize="small")
            axes.set_ylim(len(bars) - 0.5, -0.5)
            axes.set_xlim(left=0)
            axes.set_title(title, fontsize="medium")
            axes.grid(axis="x", alpha=0.3)
    return file


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(argv)
    panels: dict[str, list[Bar]] = {}
    for file in sorted(options.results.glob("study-schemes*.json")):
        panels |= scores(json.loads(file.read_text(encoding="utf-8")))
    if panels:
        print(draw(options.out / "schemes.svg", panels))
    for file in sorted(options.results.glob("drift-*.json")):
        found = divergences(json.loads(file.read_text(encoding="utf-8")))
        print(draw(options.out / f"{file.stem}.svg", found))


if __name__ == "__main__":
    main()
