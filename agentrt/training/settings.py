"""How a role is trained. Frozen, and written whole into the adapter's card."""

import math
from dataclasses import dataclass
from typing import Final

from agentrt.errors import UsageError
from agentrt.model.trainable import Context

OWN_CONTEXT: Final[tuple[tuple[Context, float], ...]] = (("own", 1.0),)
"""A role that processes all it reads, as without sharing."""

READER_CONTEXTS: Final[tuple[tuple[Context, float], ...]] = (("own", 0.6), ("neutral_lr", 0.4))
"""For the role that reads most of the trajectory first: it processes its context itself, or nobody has."""

SHARED_CONTEXTS: Final[tuple[tuple[Context, float], ...]] = (
    ("own", 0.25),
    ("other_lr", 0.45),
    ("neutral_lr", 0.2),
    ("other", 0.1),
)
"""For the roles after it: under a sharing scheme they read what it left behind, and must have learnt to."""

ACTIVATED_CONTEXTS: Final[tuple[tuple[Context, float], ...]] = (("neutral", 1.0),)
"""For activated LoRA: everything before its invocation is read with adapters off, always."""


@dataclass(frozen=True)
class TrainSettings:
    """Defaults are those of the default backbone's adapters.

    A step learns from `sequences_per_step` examples, in parts of at most `max_batch_tokens` whose gradients add up.
    `contexts` are the shares of examples by who processed what the role reads. `passes` over the examples may be a
    fraction. Of the share `held_out` of the questions, whole ones are held out until `max_held_out` examples are.
    `max_minutes`, if set, ends training early with the learning rate still brought down to zero; the result
    then depends on the machine's speed.
    """

    passes: float = 2.0
    learning_rate: float = 1.2e-3
    warmup_steps: int = 20
    sequences_per_step: int = 2
    max_batch_tokens: int = 1024
    clip_norm: float = 1.0
    seed: int = 0
    held_out: float = 0.05
    max_held_out: int = 24
    max_minutes: float | None = None
    contexts: tuple[tuple[Context, float], ...] = OWN_CONTEXT

    def __post_init__(self) -> None:
        for name, ok, fix in (
            ("passes", self.passes > 0, "more than 0"),
            ("learning_rate", self.learning_rate > 0, "more than 0"),
            ("sequences_per_step", self.sequences_per_step >= 1, "at least 1"),
            ("held_out", 0 <= self.held_out < 1, "a share in [0, 1)"),
            ("max_minutes", self.max_minutes is None or self.max_minutes > 0, "more than 0"),
        ):
            if not ok:
                raise UsageError(f"training: {name} is {getattr(self, name)}, must be {fix}")

    def total_steps(self, num_examples: int) -> int:
        return max(1, math.ceil(self.passes * num_examples / self.sequences_per_step))

    def rate(self, step: int, progress: float) -> float:
        """Learning rate of a step (from 0): linear warm-up, then a cosine in `progress` [0, 1] down to zero."""
        warm = min(1.0, (step + 1) / max(1, self.warmup_steps))
        return self.learning_rate * warm * 0.5 * (1.0 + math.cos(math.pi * min(1.0, progress)))
