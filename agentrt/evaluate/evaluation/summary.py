"""What the rows of an evaluation come to: means by group, intervals, failures and tool health."""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, stdev
from typing import Any, Final

from agentrt.engine import Engine
from agentrt.evaluate.evaluation.natural import limit_share, natural_figures
from agentrt.evaluate.evaluation.row import EpisodeRow
from agentrt.evaluate.evaluation.sureness import told_apart
from agentrt.evaluate.replay.declare import declare, describe_machine
from agentrt.evaluate.scoring import guess_baseline, score_text
from agentrt.evaluate.statistics import Interval, bootstrap_mean
from agentrt.runtime import ports
from agentrt_tools import ToolHealth

Metric = Callable[[EpisodeRow], float]

TEXT_METRICS: Final[Mapping[str, Metric]] = {"em": lambda row: float(row.correct), "f1": lambda row: row.f1}
CHOICE_METRICS: Final[Mapping[str, Metric]] = {"accuracy": lambda row: float(row.correct)}


def metrics_of(rows: Sequence[EpisodeRow]) -> Mapping[str, Metric]:
    """What rows are scored by: accuracy for multiple choice, else exact match and F1."""
    return CHOICE_METRICS if any(row.choices for row in rows) else TEXT_METRICS


def summarise(benchmark: str, scheme: str, rows: Sequence[EpisodeRow]) -> dict[str, Any]:
    """The final object of an evaluation; its keys are stable. Episodes without an answer count as wrong.

    `n`: episodes. `metrics`, in [0, 1]: em and f1, or accuracy for multiple choice. `ci95`: over questions, repeats
    of one averaged first; None for a single question. `std_over_repeats`: the sample standard deviation of the means
    of whole repeats; None for fewer than two. `baseline`: what always giving the most frequent answer scores.
    `limit_share`: of episodes that hit a limit. `told_apart`: how well confidence and verdict tell right answers from
    wrong ones, see the function. `per_episode`: see `natural_figures`.
    """
    rows = sorted(rows, key=lambda row: row.key)
    metrics = metrics_of(rows)
    groups: dict[str, list[EpisodeRow]] = defaultdict(list)
    for row in rows:
        groups[row.group].append(row)
    intervals = {name: _interval(rows, metric) for name, metric in metrics.items()}
    health = ToolHealth()
    for row in rows:
        if row.result is not None:
            health += ToolHealth.from_json(row.result.tool_health)
    return {
        "event": "eval_finished",
        "benchmark": benchmark,
        "scheme": scheme,
        "n": len(rows),
        "questions": len({row.id for row in rows}),
        "metrics": means(rows, metrics),
        "by_group": {
            group: {"n": len(found), **means(found, metrics)}
            for group, found in sorted(groups.items(), key=lambda item: _order(item[0]))
        },
        "ci95": {
            name: None if found is None else [round(end, 6) for end in found] for name, found in intervals.items()
        },
        "std_over_repeats": _spread(rows, metrics),
        "baseline": _baseline(rows),
        "status": dict(sorted(Counter(row.status for row in rows).items())),
        "limit_share": limit_share(rows),
        "told_apart": told_apart(rows),
        "failed": sum(row.broken for row in rows),
        "per_episode": natural_figures(rows),
        "tool_health": health.to_json(),
    }


def declare_engine(engine: ports.Engine) -> dict[str, Any]:
    """What the engine's numbers depend on; nothing of an engine without a model."""
    if not isinstance(engine, Engine):
        return {}
    declared = declare(engine.scheme, engine.backbone, engine.adapters)
    return {**declared, **describe_machine(engine.backbone.device)}


def means(rows: Sequence[EpisodeRow], metrics: Mapping[str, Metric]) -> dict[str, float]:
    """Of each metric over episodes."""
    return {name: round(fmean(map(metric, rows)), 6) for name, metric in metrics.items()}


def _interval(rows: Sequence[EpisodeRow], metric: Metric) -> Interval | None:
    by_question: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        by_question[row.id].append(metric(row))
    return bootstrap_mean([fmean(values) for values in by_question.values()])


def _spread(rows: Sequence[EpisodeRow], metrics: Mapping[str, Metric]) -> dict[str, float] | None:
    """Over repeats of all questions: one that is not whole has a mean of other questions."""
    repeats: dict[int, list[EpisodeRow]] = defaultdict(list)
    for row in rows:
        repeats[row.repeat].append(row)
    questions = len({row.id for row in rows})
    whole = [means(found, metrics) for found in repeats.values() if len(found) == questions]
    if len(whole) < 2:
        return None
    return {name: round(stdev(each[name] for each in whole), 6) for name in metrics}


def _baseline(rows: Sequence[EpisodeRow]) -> dict[str, Any] | None:
    """For text its scores are those of the answer over all questions."""
    asked = [row.asked for row in {row.id: row for row in rows}.values()]
    if (found := guess_baseline(asked)) is not None:
        return {"letter": found.letter, "accuracy": round(found.accuracy, 6)}
    answer = min((counts := Counter(each.answer for each in asked)), key=lambda text: (-counts[text], text))
    scores = [score_text(answer, each.answer) for each in asked]
    return {
        "answer": answer,
        "em": round(fmean(float(each.correct) for each in scores), 6),
        "f1": round(fmean(each.f1 for each in scores), 6),
    }


def _order(group: str) -> tuple[int, str]:
    """Levels and grade bands in their own order, others after them by name."""
    known = ("easy", "medium", "hard", "1-4", "5-8", "9-12")
    return (known.index(group) if group in known else len(known), group)
