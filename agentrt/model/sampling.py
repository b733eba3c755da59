"""From one row of logits to one token id: greedy, temperature, top-k, top-p, and constrained choices.

Draws are counter-based: a token depends on (seed, position) and its logits alone, never on batch or order.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import torch

from agentrt.errors import EngineError, UsageError


class Constraint(Protocol):
    """Limits what a turn may generate."""

    def allowed(self, generated: Sequence[int]) -> Sequence[int] | None:
        """Token ids that may come next: None = any, empty = the field is complete and the turn ends."""
        ...


@dataclass(frozen=True)
class Sampling:
    """How a turn picks its tokens. `temperature` 0 is greedy; `top_k` 0 and `top_p` 1 switch the cuts off."""

    max_new_tokens: int = 128
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int = 0
    stop: Callable[[Sequence[int]], bool] | None = None
    """Called with the tokens generated so far, after each; True ends the turn. The last token is kept."""
    constraint: Constraint | None = None
    forced: Sequence[int] = ()
    """Token ids that the turn begins with, whatever the model, the stop or the constraint would say of them."""

    def __post_init__(self) -> None:
        for name, ok, fix in (
            ("max_new_tokens", self.max_new_tokens >= 1, "at least 1"),
            ("temperature", self.temperature >= 0, "0 (greedy) or more"),
            ("top_p", 0 < self.top_p <= 1, "in (0, 1]"),
            ("top_k", self.top_k >= 0, "0 (off) or more"),
        ):
            if not ok:
                raise UsageError(f"sampling: {name} is {getattr(self, name)}, must be {fix}")
        if len(self.forced) > self.max_new_tokens:
            raise UsageError(f"sampling: {len(self.forced)} forced tokens, max_new_tokens is {self.max_new_tokens}")

    def allowed(self, generated: Sequence[int]) -> Sequence[int] | None:
        """Token ids that may come after `generated`: None = any, empty = the turn ends."""
        if self.forces(generated):
            return [self.forced[len(generated)]]
        return None if self.constraint is None else self.constraint.allowed(generated)

    def forces(self, generated: Sequence[int]) -> bool:
        """Whether the token after `generated` is forced."""
        return len(generated) < len(self.forced)


class Sampled(NamedTuple):
    token_id: int
    logprob: float
    """Log-probability under the model's own distribution, before temperature, cuts and constraint."""


def sample(logits: torch.Tensor, sampling: Sampling, position: int, allowed: Sequence[int] | None) -> Sampled:
    """Pick the token at `position` from `logits` [vocab], among `allowed` (None = all).

    Raises UsageError where nothing or an unknown id is allowed, EngineError where the logits are not numbers.
    """
    scores = logits.float()
    logprobs = scores.log_softmax(-1)
    ids = None
    if allowed is not None:
        ids = torch.as_tensor(sorted(set(allowed)), dtype=torch.long, device=scores.device)
        if len(ids) == 0:
            raise UsageError("the constraint allows no first token; give it at least one choice")
        if int(ids[0]) < 0 or int(ids[-1]) >= len(scores):
            raise UsageError(f"the constraint allows a token id outside the vocabulary [0, {len(scores)})")
        scores = scores[ids]
    choice = int(scores.argmax()) if sampling.temperature == 0 else _draw(scores, sampling, position)
    token_id = choice if ids is None else int(ids[choice])
    logprob = float(logprobs[token_id])
    if math.isnan(logprob):
        raise EngineError("the model's logits are not numbers: its weights or caches are damaged")
    return Sampled(token_id, logprob)


def _draw(scores: torch.Tensor, sampling: Sampling, position: int) -> int:
    """Inverse-CDF draw in float64, in the order of ids: rounding of the logits hardly ever changes a draw."""
    probs = ((scores.double() - float(scores.max())) / sampling.temperature).softmax(-1)
    kept = _cut(probs, sampling)
    if kept is not None:
        probs = probs[kept]
    cumulative = probs.cumsum(0)
    philox = np.random.Generator(np.random.Philox(key=sampling.seed % 2**64, counter=position))
    drawn = torch.tensor(philox.random(), dtype=torch.float64, device=cumulative.device) * cumulative[-1]
    index = min(int(torch.searchsorted(cumulative, drawn, right=True)), len(probs) - 1)
    return index if kept is None else int(kept[index])


def _cut(probs: torch.Tensor, sampling: Sampling) -> torch.Tensor | None:
    """Ids that survive top-k, then top-p, ascending; None where nothing is cut."""
    if sampling.top_k == 0 and sampling.top_p == 1:
        return None
    best, order = probs.topk(min(sampling.top_k or len(probs), len(probs)))
    cumulative = best.cumsum(0)
    keep = int((cumulative < sampling.top_p * cumulative[-1]).sum()) + 1
    return order[:keep].sort().values
