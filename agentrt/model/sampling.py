"""From one row of logits to one token id: greedy, temperature, top-k, top-p, and constrained choices.

Draws are counter-based: a token depends on (seed, position) and its logits alone, never on batch or order.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import torch

from agentrt.errors import UsageError


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

    def __post_init__(self) -> None:
        for name, ok, fix in (
            ("max_new_tokens", self.max_new_tokens >= 1, "at least 1"),
            ("temperature", self.temperature >= 0, "0 (greedy) or more"),
            ("top_p", 0 < self.top_p <= 1, "in (0, 1]"),
            ("top_k", self.top_k >= 0, "0 (off) or more"),
        ):
            if not ok:
                raise UsageError(f"sampling: {name} is {getattr(self, name)}, must be {fix}")


class Sampled(NamedTuple):
    token_id: int
    logprob: float
    """Log-probability under the model's own distribution, before temperature, cuts and constraint."""


def sample(logits: torch.Tensor, sampling: Sampling, position: int, allowed: Sequence[int] | None) -> Sampled:
    """Pick the token at `position` from `logits` [vocab], among `allowed` (None = all).

    Raises UsageError where nothing is allowed.
    """
    scores = logits.float()
    logprobs = scores.log_softmax(-1)
    if allowed is not None:
        if len(allowed) == 0:
            raise UsageError("the constraint allows no first token; give it at least one choice")
        index = torch.as_tensor(list(allowed), dtype=torch.long, device=scores.device)
        scores = scores[index]
    if sampling.temperature == 0:
        choice = int(scores.argmax())
    else:
        choice = _draw(scores / sampling.temperature, sampling, position)
    token_id = choice if allowed is None else int(index[choice])
    return Sampled(token_id, float(logprobs[token_id]))


def _draw(scores: torch.Tensor, sampling: Sampling, position: int) -> int:
    """Inverse-CDF draw in float64 over the tokens that survive top-k and top-p, most likely first."""
    probs, order = scores.double().softmax(-1).sort(descending=True, stable=True)
    if sampling.top_k:
        probs = probs[: sampling.top_k]
    cumulative = probs.cumsum(0)
    keep = int((cumulative < sampling.top_p * float(cumulative[-1])).sum()) + 1
    cumulative = cumulative[:keep]
    philox = np.random.Generator(np.random.Philox(key=sampling.seed % 2**64, counter=position))
    drawn = philox.random() * float(cumulative[-1])
    index = int(torch.searchsorted(cumulative, torch.tensor(drawn, dtype=torch.float64, device=cumulative.device)))
    return int(order[min(index, keep - 1)])
