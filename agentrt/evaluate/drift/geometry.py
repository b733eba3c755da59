"""PReCache's figures of a handover: where the previous agent's state, the neutral one and one's own lie. Pure tensors.

C_i is the previous agent's state of a token, C_j the current agent's, C the one with adapters off; D_i = C_i - C.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

import torch

NOTHING: Final = 1e-5
"""An adapter that moves a state by less than this part of its length has not moved it: that is rounding."""


class TokenFigures(NamedTuple):
    """Of each token, [n] in fp64; NaN where a figure is not defined."""

    rho: torch.Tensor
    """|D_i| / |D_j|"""
    cos: torch.Tensor
    """of the angle between D_i and D_j"""
    gamma: torch.Tensor
    """sqrt(1 + rho^2 - 2 rho cos): the previous agent's error in units of the neutral one's"""
    previous: torch.Tensor
    """|C_i - C_j| / |C_j|"""
    neutral: torch.Tensor
    """|D_j| / |C_j|"""
    closer: torch.Tensor
    """1 where the neutral state is the closer one, which is where rho > 2 cos; else 0"""


class Figures(NamedTuple):
    """Means over `tokens` tokens; None where no token has the figure. `closer` is the share of tokens."""

    rho: float | None
    cos: float | None
    gamma: float | None
    previous: float | None
    neutral: float | None
    closer: float | None
    tokens: int


def token_figures(previous: torch.Tensor, current: torch.Tensor, neutral: torch.Tensor) -> TokenFigures:
    """All [n, width]: the same tokens as the previous agent, the current one and the model alone compute them.

    Where neither adapter moved a token there is nothing to compare: rho, cos, gamma and closer are NaN. Where only the
    current agent's did not, the neutral state is exact: closer is 1, the other three are not defined.
    """
    previous, current, neutral = previous.double(), current.double(), neutral.double()
    moved_i, moved_j = previous - neutral, current - neutral
    size, size_i, size_j = current.norm(dim=1), moved_i.norm(dim=1), moved_j.norm(dim=1)
    nan = torch.full_like(size, float("nan"))
    has_i, has_j = size_i > NOTHING * neutral.norm(dim=1), size_j > NOTHING * neutral.norm(dim=1)
    dots = (moved_i * moved_j).sum(1)
    rho = torch.where(has_j, size_i / size_j, nan)
    cos = torch.where(has_j, torch.where(has_i, dots / (size_i * size_j), torch.zeros_like(size)), nan)
    rho = torch.where(has_j & ~has_i, torch.zeros_like(size), rho)
    gamma = (1 + rho * rho - 2 * rho * cos).clamp_min(0).sqrt()
    closer = torch.where(has_j, (rho > 2 * cos).double(), torch.where(has_i, torch.ones_like(size), nan))
    return TokenFigures(rho, cos, gamma, (previous - current).norm(dim=1) / size, size_j / size, closer)


def distance(previous: torch.Tensor, current: torch.Tensor) -> torch.Tensor:
    """|C_i - C_j| / |C_j| of each token, [n] in fp64; for states that have no neutral counterpart."""
    current = current.double()
    error: torch.Tensor = (previous.double() - current).norm(dim=1) / current.norm(dim=1)
    return error


class Tally:
    """Running means of token figures."""

    def __init__(self) -> None:
        self._sums = [0.0] * len(TokenFigures._fields)
        self._counts = [0] * len(TokenFigures._fields)
        self.tokens = 0

    def add(self, found: TokenFigures) -> None:
        self.tokens += len(found.previous)
        for index, column in enumerate(found):
            known = column[~column.isnan()]
            self._sums[index] += float(known.sum())
            self._counts[index] += len(known)

    def add_distance(self, found: torch.Tensor) -> None:
        """Only `previous` is known."""
        nan = torch.full_like(found, float("nan"))
        self.add(TokenFigures(nan, nan, nan, found, nan, nan))

    @classmethod
    def restore(cls, stored: Sequence[Any]) -> "Tally":
        """The tally that `stored` came from."""
        found = cls()
        found.tokens, found._sums, found._counts = stored
        return found

    @property
    def stored(self) -> list[Any]:
        """As JSON."""
        return [self.tokens, self._sums, self._counts]

    def merge(self, other: "Tally") -> None:
        self.tokens += other.tokens
        self._sums = [a + b for a, b in zip(self._sums, other._sums, strict=True)]
        self._counts = [a + b for a, b in zip(self._counts, other._counts, strict=True)]

    @property
    def figures(self) -> Figures:
        sums = zip(TokenFigures._fields, self._sums, self._counts, strict=True)
        means = {name: total / count if count else None for name, total, count in sums}
        return Figures(**means, tokens=self.tokens)


def pooled(tallies: Iterable[Tally]) -> Tally:
    """One tally over all their tokens."""
    total = Tally()
    for each in tallies:
        total.merge(each)
    return total
