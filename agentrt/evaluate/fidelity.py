"""KL of a scheme's next-token distributions against non_shared's, on the same forced trajectories."""

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from statistics import fmean
from typing import Final, NamedTuple, TypeVar

import torch

from agentrt.evaluate.forced import Forced, Sample, force
from agentrt.evaluate.statistics import Interval, bootstrap_mean
from agentrt.model.adapters import AdapterSet
from agentrt.model.backbone import Backbone
from agentrt.schemes import Scheme
from agentrt.schemes.make import make_scheme

REFERENCE: Final = "non_shared"

_AT_ONCE: Final = 64
"""Tokens whose distributions are compared at once: a vocabulary in fp64 is large."""

Key = TypeVar("Key", bound=Hashable)


class Estimate(NamedTuple):
    """A mean over trajectories with its 95 % interval, None for fewer than two."""

    mean: float
    ci95: Interval | None
    trajectories: int

    @classmethod
    def of(cls, values: Sequence[float]) -> "Estimate":
        return cls(fmean(values), bootstrap_mean(values), len(values))


class Held(NamedTuple):
    """One trajectory under one scheme, held against non_shared: the mean divergence in nats over its generated tokens,
    and over those of each role; rows run, and the most bytes held."""

    kl: float
    by_role: Mapping[str, float]
    rows: int
    kv_bytes_peak: int


class Reference:
    """non_shared's next-token distributions over one trajectory, made once for all schemes."""

    def __init__(self, sample: Sample, logits: torch.Tensor) -> None:
        """`logits` [generated tokens, vocab]."""
        self._authors, self._roles = sample.authors, sample.agents
        self._logprobs = logits.log_softmax(-1).double()
        self._probs = self._logprobs.exp()

    def divergence(self, logits: torch.Tensor) -> torch.Tensor:
        """KL(reference || other) of each token in nats, fp64; `logits` [generated tokens, vocab] are the other's."""
        found = torch.empty(len(logits), dtype=torch.float64)
        for start in range(0, len(logits), _AT_ONCE):
            rows = slice(start, start + _AT_ONCE)
            other = logits[rows].log_softmax(-1).double()
            found[rows] = (self._probs[rows] * (self._logprobs[rows] - other)).sum(-1)
        return found.clamp_min_(0)

    def hold(self, forced: Forced) -> Held:
        divergence = self.divergence(forced.logits)
        by_role = {}
        for role in self._roles:
            own = torch.tensor([author == role for author in self._authors])
            by_role[role] = float(divergence[own].mean())
        return Held(float(divergence.mean()), by_role, forced.rows, forced.kv_bytes_peak)


class Fidelity:
    """One scheme's divergence in nats, a value for each trajectory."""

    def __init__(self, label: str) -> None:
        self.label = label
        self.values: list[float] = []
        self._by_role: dict[str, list[float]] = defaultdict(list)
        self._rows: list[int] = []
        self._peaks: list[int] = []

    def add(self, held: Held) -> None:
        self.values.append(held.kl)
        for role, value in held.by_role.items():
            self._by_role[role].append(value)
        self._rows.append(held.rows)
        self._peaks.append(held.kv_bytes_peak)

    @property
    def overall(self) -> Estimate:
        return Estimate.of(self.values)

    @property
    def by_role(self) -> dict[str, Estimate]:
        return {role: Estimate.of(values) for role, values in self._by_role.items()}

    @property
    def rows(self) -> float:
        """Rows run for a trajectory, mean."""
        return fmean(self._rows)

    @property
    def kv_bytes_peak(self) -> float:
        """Most bytes held during a trajectory, mean."""
        return fmean(self._peaks)


def hold_against_reference(
    sample: Sample,
    backbone: Backbone,
    adapters: AdapterSet,
    schemes: Mapping[Key, Scheme],
    tick: Callable[[], None],
) -> tuple[Held, dict[Key, Held]]:
    """Force `sample` through non_shared and through each of `schemes`; `tick` after each."""
    exact = force(make_scheme(REFERENCE), backbone, adapters, sample)
    reference = Reference(sample, exact.logits)
    own = reference.hold(exact)
    tick()
    found = {}
    for key, scheme in schemes.items():
        found[key] = reference.hold(force(scheme, backbone, adapters, sample))
        tick()
    return own, found
