"""Differences between two evaluations, question by question, with paired bootstrap intervals."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Final, NamedTuple

from agentrt.evaluate.compare.runs import EvalRun
from agentrt.evaluate.evaluation.natural import FIGURES
from agentrt.evaluate.evaluation.plan import Key
from agentrt.evaluate.evaluation.row import EpisodeRow
from agentrt.evaluate.evaluation.summary import metrics_of
from agentrt.evaluate.statistics import Interval, bootstrap_mean

Measure = Callable[[EpisodeRow], float | None]
"""None where the episode broke before it had the figure."""

_COSTS: Final = ("trajectory_tokens", "generated_tokens", "steps", "model_latency_s")


class Difference(NamedTuple):
    """Means over `questions` questions, repeats of one averaged first. `difference` is other - reference, `ci95` its
    paired bootstrap interval; None for a single question."""

    reference: float
    other: float
    difference: float
    ci95: Interval | None
    questions: int

    @property
    def told_apart(self) -> bool:
        """Whether the interval excludes zero."""
        return self.ci95 is not None and not self.ci95.low <= 0 <= self.ci95.high


class Flip(NamedTuple):
    """A question that one run answers right more often than the other: shares of its repeats, and first answers."""

    id: str
    question: str
    gold: str
    reference: float
    other: float
    reference_answer: str | None
    other_answer: str | None


def measures_of(rows: Sequence[EpisodeRow]) -> dict[str, Measure]:
    """Scores first, then costs."""
    return {**metrics_of(rows), **{name: _cost(name) for name in _COSTS}}


def differences(reference: EvalRun, other: EvalRun, keys: Sequence[Key], seed: int) -> dict[str, Difference]:
    """By measure; one that no pair has is left out."""
    found = {}
    for name, measure in measures_of([reference.rows[key] for key in keys]).items():
        pairs: dict[str, list[tuple[float, float]]] = defaultdict(list)
        for key in keys:
            ours, theirs = measure(reference.rows[key]), measure(other.rows[key])
            if ours is not None and theirs is not None:
                pairs[key.id].append((ours, theirs))
        if pairs:
            found[name] = _difference(pairs, seed)
    return found


def flips(reference: EvalRun, other: EvalRun, keys: Sequence[Key]) -> list[Flip]:
    """In the order of the questions' ids."""
    repeats: dict[str, list[Key]] = defaultdict(list)
    for key in keys:
        repeats[key.id].append(key)
    found = []
    for name, each in repeats.items():
        ours, theirs = (fmean(float(run.rows[key].correct) for key in each) for run in (reference, other))
        if ours != theirs:
            first = reference.rows[each[0]]
            answers = (first.prediction, other.rows[each[0]].prediction)
            found.append(Flip(name, first.question, first.letter or first.answer, ours, theirs, *answers))
    return found


def _difference(pairs: Mapping[str, Sequence[tuple[float, float]]], seed: int) -> Difference:
    ours = [fmean(pair[0] for pair in each) for each in pairs.values()]
    theirs = [fmean(pair[1] for pair in each) for each in pairs.values()]
    each = [b - a for a, b in zip(ours, theirs, strict=True)]
    return Difference(fmean(ours), fmean(theirs), fmean(each), bootstrap_mean(each, seed=seed), len(each))


def _cost(name: str) -> Measure:
    figure = FIGURES[name]
    return lambda row: None if row.result is None else figure(row.result)
