"""A comparison of several evaluations with the first of them, as one JSON object, and as a figure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from agentrt.evaluate.compare.pairs import Difference, Flip, differences, flips
from agentrt.evaluate.compare.runs import EvalRun, paired_keys
from agentrt.evaluate.evaluation.natural import natural_figures
from agentrt.evaluate.evaluation.plan import Key
from agentrt.evaluate.evaluation.summary import means, metrics_of
from agentrt.evaluate.figures import draw_lines
from agentrt.evaluate.statistics import RESAMPLES

_MAY_DIFFER: Final = ("scheme", "scheme_options", "maps_sha256", "repeats", "questions", "questions_sha256")


@dataclass(frozen=True)
class Pairing:
    """One evaluation against the first."""

    run: EvalRun
    differences: Mapping[str, Difference]
    flips: Sequence[Flip]


@dataclass(frozen=True)
class Comparison:
    """`keys`: the episodes that are paired. `differing`: what else, besides the scheme, the runs do not share."""

    runs: Sequence[EvalRun]
    keys: Sequence[Key]
    pairings: Sequence[Pairing]
    seed: int

    @property
    def differing(self) -> dict[str, list[Any]]:
        names = dict.fromkeys(name for run in self.runs for name in run.identity if name not in _MAY_DIFFER)
        values = {name: [run.identity.get(name) for run in self.runs] for name in names}
        return {name: found for name, found in values.items() if any(value != found[0] for value in found)}


def compare(runs: Sequence[EvalRun], *, common: bool = False, seed: int = 0) -> Comparison:
    """Hold every run against the first. Raises what `paired_keys` raises."""
    keys = paired_keys(runs, common=common)
    first, *others = runs
    pairings = [Pairing(run, differences(first, run, keys, seed), flips(first, run, keys)) for run in others]
    return Comparison(runs, keys, pairings, seed)


def to_record(comparison: Comparison) -> dict[str, Any]:
    """Its keys are stable. `gained` counts flips that the first run has wrong, or right less often."""
    return {
        "event": "compared",
        "reference": comparison.runs[0].label,
        "questions": len({key.id for key in comparison.keys}),
        "episodes": len(comparison.keys),
        "resamples": RESAMPLES,
        "seed": comparison.seed,
        "differing": comparison.differing,
        "runs": [_run(run, comparison.keys) for run in comparison.runs],
        "comparisons": [
            {
                "run": pairing.run.label,
                "differences": {name: _plain(found) for name, found in pairing.differences.items()},
                "gained": sum(flip.other > flip.reference for flip in pairing.flips),
                "lost": sum(flip.other < flip.reference for flip in pairing.flips),
                "flips": [flip._asdict() for flip in pairing.flips],
            }
            for pairing in comparison.pairings
        ],
    }


def draw(record: Mapping[str, Any], file: Path) -> Path:
    """A point for each run: its first metric against the model's seconds an episode (PReCache's figure 8)."""
    points = {
        run["run"]: [(run["per_episode"]["model_latency_s"], next(iter(run["metrics"].values())))]
        for run in record["runs"]
        if run["per_episode"] is not None
    }
    metric = next(iter(record["runs"][0]["metrics"]))
    return draw_lines(file, points, x_label="model latency of an episode, s", y_label=metric)


def _run(run: EvalRun, keys: Sequence[Key]) -> dict[str, Any]:
    rows = [run.rows[key] for key in keys]
    metrics = means(rows, metrics_of(rows))
    return {"run": run.label, "id": run.id, "metrics": metrics, "per_episode": natural_figures(rows)}


def _plain(found: Difference) -> dict[str, Any]:
    return {**found._asdict(), "ci95": found.ci95 and list(found.ci95), "told_apart": found.told_apart}
