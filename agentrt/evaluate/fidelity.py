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
Key = TypeVar("Key", bound=Hashable)


class Estimate(NamedTuple):
    """A mean over trajectories with its 95 % interval, None for fewer than two."""

    mean: float
    ci95: Interval | None
    trajectories: int

    @classmethod
    def of(cls, values: Sequence[float]) -> "Estimate":
        return cls(fmean(values), bootstrap_mean(values), len(values))


class Fidelity:
    """One scheme's divergence in nats, a value for each trajectory: the mean over its generated tokens."""

    def __init__(self, label: str) -> None:
        self.label = label
        self.values: list[float] = []
        self._by_role: dict[str, list[float]] = defaultdict(list)
        self._rows: list[int] = []
        self._peaks: list[int] = []

    def add(self, sample: Sample, reference: torch.Tensor, found: Forced) -> None:
        """`reference`: non_shared's log-probabilities [generated tokens, vocab]."""
        divergence = kl(reference, found.logits.log_softmax(-1))
        self.values.append(float(divergence.mean()))
        authors = sample.authors
        for role in sample.agents:
            own = torch.tensor([author == role for author in authors])
            self._by_role[role].append(float(divergence[own].mean()))
        self._rows.append(found.rows)
        self._peaks.append(found.kv_bytes_peak)

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
    reference: Fidelity,
    schemes: Mapping[Key, Scheme],
    found: Mapping[Key, Fidelity],
    tick: Callable[[], None],
) -> None:
    """Force `sample` through non_shared and through each of `schemes`, and add what comes out; `tick` after each."""
    exact = force(make_scheme(REFERENCE), backbone, adapters, sample)
    logprobs = exact.logits.log_softmax(-1)
    reference.add(sample, logprobs, exact)
    tick()
    for key, scheme in schemes.items():
        found[key].add(sample, logprobs, force(scheme, backbone, adapters, sample))
        tick()


def kl(reference: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """KL(reference || other) of each row of log-probabilities [n, vocab], in nats, fp64."""
    reference = reference.double()
    return (reference.exp() * (reference - other.double())).sum(-1).clamp_min(0)
