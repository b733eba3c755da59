"""A field counts as right only where every token of it is the most likely one."""

import math

import pytest
import torch

from agentrt.training.examples import Example, TaughtField
from agentrt.training.scores import FieldCount, Score, Tally

LONG = Example("a", "a", (0, 1, 2, 3, 4, 5), (TaughtField("thought", 1, 4), TaughtField("action", 5, 6)))
SHORT = Example("b", "b", (0, 1, 2), (TaughtField("thought", 1, 3),))


def logits_for(predicted: list[int]) -> torch.Tensor:
    """`[n, 6]`: each row's most likely token is the one given, at odds that make the loss known."""
    logits = torch.zeros(len(predicted), 6)
    logits[torch.arange(len(predicted)), torch.tensor(predicted)] = math.log(5.0)  # 1/2, others 1/10
    return logits


def test_fields_are_counted_whole_and_by_kind() -> None:
    tally = Tally()
    tally.add([LONG, SHORT], logits_for([1, 2, 0, 5, 1, 2]), torch.tensor([1, 2, 3, 5, 1, 2]))
    tally.add([SHORT], logits_for([0, 2]), torch.tensor([1, 2]))
    score = tally.score()
    assert score is not None
    assert score.fields == {"action": FieldCount(1, 1), "thought": FieldCount(1, 3)}
    assert score.field_accuracy == 0.5
    assert score.accuracy == 6 / 8
    assert score.loss == pytest.approx((6 * math.log(2) + 2 * math.log(10)) / 8)
    assert Score.from_json(score.to_json()) == score


def test_nothing_has_no_score() -> None:
    assert Tally().score() is None
