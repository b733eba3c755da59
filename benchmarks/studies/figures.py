"""Figures of what the studies found: `python -m benchmarks.studies.figures --out docs/figures`.

From `study-schemes*.json` a score with its interval for every scheme, from `drift-*.json` the divergence of every
scheme by role, from the studies that train (`rebase`, `ranks`) both by how they trained, from `study-boundary.json`
how far each boundary is from native. Nothing is measured here.
"""

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
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


FEWEST: Final = 10
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
            found.setdefault(f"KL, {role}", []).append(_bar(scheme["scheme"], each))
    return found


def by_training(study: Mapping[str, Any]) -> dict[str, list[Bar]]:
    """KL against non_shared of every scheme over all roles, for each of the study's teams."""
    drifts = {key: row["schemes"] for key, row in study["rows"].items() if "schemes" in row}
    return {
        f"KL, {key.removesuffix(' drift')}": [_bar(each["scheme"], each["kl"]) for each in schemes]
        for key, schemes in drifts.items()
    }


def boundaries(study: Mapping[str, Any]) -> dict[str, list[Bar]]:
    """Paired difference of F1 from native at every boundary, for each context and specialist, at the larger budget.

    Of contexts with fewer than FEWEST questions there is none: they were asked for their times.
    """
    found: dict[str, list[Bar]] = {}
    largest = max(study["config"]["budgets"])
    for context, row in study["rows"].items():
        asked = row.get("conditions", {}) if row.get("n", 0) >= FEWEST else {}
        for key, each in asked.items():
            condition, speaker, budget = key.split(", ")
            if "f1_minus_native" in each and condition != "native" and budget == f"{largest} tokens":
                bars = found.setdefault(f"F1 - native, {context}, {speaker}, n = {each['n']}", [])
                bars.append(_bar(condition, each["f1_minus_native"]))
    return found


def _bar(label: str, value: Mapping[str, Any]) -> Bar:
    low, high = value["ci95"] or (value["mean"], value["mean"])
    return Bar(label, value["mean"], low, high)


def draw(file: Path, panels: Mapping[str, Sequence[Bar]]) -> Path:
    """A panel a title, a line a label, from the top; makes the folder. Raises UsageError without matplotlib."""
    height = 1.2 + 0.28 * max(len(bars) for bars in panels.values())
    columns = min(len(panels), 3 if len(panels) % 4 else 4)
    rows = -(-len(panels) // columns)
    with canvas(file, rows, columns, size=(4.2 * columns, height * rows)) as grid:
        left = iter(grid)
        for (title, bars), axes in zip(panels.items(), left, strict=False):
            lines = list(range(len(bars)))
            values = [bar.value for bar in bars]
            sides = [[bar.value - bar.low for bar in bars], [bar.high - bar.value for bar in bars]]
            axes.errorbar(values, lines, xerr=sides, fmt="o", markersize=4, capsize=2)
            axes.set_yticks(lines, [bar.label for bar in bars], fontsize="small")
            axes.set_ylim(len(bars) - 0.5, -0.5)
            if min(bar.low for bar in bars) >= 0:
                axes.set_xlim(left=0)
            else:
                axes.axvline(0, color="black", linewidth=0.8)
            axes.set_title(title, fontsize="medium")
            axes.grid(axis="x", alpha=0.3)
        for axes in left:
            axes.set_axis_off()
    return file


FIGURES: Final[Mapping[str, Callable[[Mapping[str, Any]], dict[str, list[Bar]]]]] = {
    "study-schemes*.json": scores,
    "study-rebase*.json": by_training,
    "study-ranks*.json": lambda study: by_training(study) | scores(study),
    "study-boundary*.json": boundaries,
    "drift-*.json": divergences,
}
"""By the name of a result file, the panels of its figure."""


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(argv)
    for file in sorted(options.results.glob("*.json")):
        if figure := next((each for pattern, each in FIGURES.items() if file.match(pattern)), None):
            print(draw(options.out / f"{file.stem}.svg", figure(json.loads(file.read_text(encoding="utf-8")))))


if __name__ == "__main__":
    main()
