"""Confidence and verdict held against the scores of an evaluation."""

from dataclasses import replace

import pytest

from agentrt.evaluate.evaluation.row import EpisodeRow
from agentrt.evaluate.evaluation.sureness import auc, told_apart
from agentrt.questions.question import Question

from .rows import costly, row

QUESTION = Question("q", "mini", "eval", "easy", "bridge", "Who?", "she")


@pytest.mark.parametrize(
    ("right", "wrong", "expected"),
    [
        ([0.9, 0.8], [0.1, 0.2], 1.0),
        ([0.1], [0.2, 0.3], 0.0),
        ([0.5, 0.5], [0.5], 0.5),
        ([0.9, 0.3], [0.5, 0.3], 0.625),
        ([], [0.5], None),
        ([0.5], [], None),
    ],
)
def test_the_area_counts_pairs_in_order_and_ties_half(
    right: list[float], wrong: list[float], expected: float | None
) -> None:
    assert auc(right, wrong) == expected


def test_the_area_of_many_answers_takes_no_room_for_their_pairs() -> None:
    assert auc([1.0] * 200_000, [0.0] * 100_000 + [1.0] * 100_000) == 0.75


def answered(name: str, prediction: str, confidence: float | None, *verdicts: str) -> EpisodeRow:
    made = costly(row(replace(QUESTION, id=name), prediction))
    assert made.result is not None
    told = {"confidence": confidence, "verdicts": verdicts}
    return made.model_copy(update={"result": made.result.model_copy(update=told)})


def test_the_last_verdict_and_the_confidence_are_judged_by_the_answers() -> None:
    rows = [
        answered("a", "she", 0.9, "wrong", "right"),
        answered("b", "she", 0.4, "wrong"),
        answered("c", "he", 0.5, "wrong"),
        answered("d", "he", None),
        row(replace(QUESTION, id="e"), None, "limit:steps"),
    ]
    assert told_apart(rows) == {"confidence": 0.5, "verdict": 0.75}
    assert told_apart(rows[:2]) == {"confidence": None, "verdict": None}
