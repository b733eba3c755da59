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
from agentrt_kernels.tables import send


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

    The host waits for the device of the logits once, for token and log-probability together.
    Raises UsageError where nothing or an unknown id is allowed, EngineError where the logits are not numbers.
    """
    scores = logits.float()
    logprobs = scores.log_softmax(-1)
    ids = None if allowed is None else _known(allowed, len(scores), scores.device)
    if ids is not None:
        scores = scores[ids]
    token = scores.argmax() if sampling.temperature == 0 else _draw(scores, sampling, position)
    token = token if ids is None else ids.take(token)
    # fp64 holds any token id
    token_id, logprob = torch.stack([token.double(), logprobs.take(token).double()]).tolist()
    if math.isnan(logprob):
        raise EngineError("the model's logits are not numbers: its weights or caches are damaged")
    return Sampled(int(token_id), logprob)


def _known(allowed: Sequence[int], vocab_size: int, device: torch.device) -> torch.Tensor:
    """The ids, ascending, on the device."""
    ids = sorted(set(allowed))
    if not ids:
        raise UsageError("the constraint allows no first token; give it at least one choice")
    if ids[0] < 0 or ids[-1] >= vocab_size:
        raise UsageError(f"the constraint allows a token id outside the vocabulary [0, {vocab_size})")
    return send(torch.tensor(ids, dtype=torch.int64), device)


def _draw(scores: torch.Tensor, sampling: Sampling, position: int) -> torch.Tensor:
    """Inverse-CDF draw in float64, in the order of ids: rounding of the logits hardly ever changes a draw.

    A number on the scores' device. What is cut has probability zero in its place, so that no length depends on it.
    """
    probs = ((scores.double() - scores.max().double()) / sampling.temperature).softmax(-1)
    kept = _cut(probs, sampling)
    cumulative = (probs if kept is None else probs.where(kept, 0.0)).cumsum(0)
    philox = np.random.Generator(np.random.Philox(key=sampling.seed % 2**64, counter=position))
    drawn = philox.random() * cumulative[-1]  # below the sum: random is at most 1 - 2^-53
    return torch.searchsorted(cumulative, drawn, right=True).clamp(max=len(probs) - 1)  # none is above a sum of NaN


def _cut(probs: torch.Tensor, sampling: Sampling) -> torch.Tensor | None:
    """Which ids survive top-k, then top-p, [n] bool; None where nothing is cut."""
    if sampling.top_k == 0 and sampling.top_p == 1:
        return None
    best, order = probs.topk(min(sampling.top_k or len(probs), len(probs)))
    cumulative = best.cumsum(0)
    last = (cumulative < sampling.top_p * cumulative[-1]).sum()
    ranks = torch.arange(len(order), device=probs.device)
    return torch.zeros_like(probs, dtype=torch.bool).scatter_(0, order, ranks <= last)
