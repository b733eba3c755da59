"""How much of what a role is to write greedy decoding would write, given the true context. Counts; knows no model."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch.nn import functional as F

from agentrt.training.examples import Example


class FieldCount(NamedTuple):
    """Fields of one kind: `right` of `total` would come out token for token, without any constraint."""

    right: int
    total: int


@dataclass(frozen=True)
class Score:
    """loss: mean per target, in nats. accuracy: share of targets that are the most likely token.

    fields: by kind, fields all of whose tokens are (each given the true tokens before it, teacher-forced).
    """

    loss: float
    accuracy: float
    fields: Mapping[str, FieldCount]

    @property
    def field_accuracy(self) -> float:
        """Share of all fields that would come out exactly."""
        return sum(count.right for count in self.fields.values()) / sum(count.total for count in self.fields.values())

    def to_json(self) -> dict[str, Any]:
        return {
            "loss": self.loss,
            "accuracy": self.accuracy,
            "field_accuracy": self.field_accuracy,
            "fields": {kind: count._asdict() for kind, count in self.fields.items()},
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Score":
        fields = {kind: FieldCount(**count) for kind, count in value["fields"].items()}
        return cls(value["loss"], value["accuracy"], fields)


@dataclass
class Tally:
    """Adds up the parts of one evaluation."""

    loss: float = 0.0
    hits: int = 0
    targets: int = 0
    fields: dict[str, FieldCount] = field(default_factory=dict)

    def add(self, examples: Iterable[Example], logits: torch.Tensor, labels: torch.Tensor) -> None:
        """`logits` `[n, vocab]` and `labels` `[n]` of all targets of `examples`, in their order."""
        self.loss += float(F.cross_entropy(logits, labels, reduction="sum"))
        right = (logits.argmax(-1) == labels).tolist()
        self.hits += sum(right)
        self.targets += len(right)
        at = 0
        for example in examples:
            for each in example.fields:
                end = at + each.end - each.start
                before = self.fields.get(each.kind, FieldCount(0, 0))
                self.fields[each.kind] = FieldCount(before.right + all(right[at:end]), before.total + 1)
                at = end
        assert at == len(right), "every target belongs to a field"

    def score(self) -> Score | None:
        """None if nothing was added."""
        if not self.targets:
            return None
        return Score(self.loss / self.targets, self.hits / self.targets, dict(sorted(self.fields.items())))
