"""relay_caching: in middle layers, tokens whose values deviate, or that the latest attend to, are computed again."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Final, NamedTuple, Self

import torch
from torch.nn import functional as F

from agentrt.cache.layout import Layout
from agentrt.cache.store import CacheStore
from agentrt.cache.view import View
from agentrt.errors import SchemeError
from agentrt.schemes.choosing import KEPT, ChoosingSession
from agentrt.schemes.layer_sets import (
    Layers,
    check_layers,
    check_ratio,
    fit_layers,
    neighbours,
    resolve_layers,
    share_of,
)
from agentrt.schemes.selective import PlaneLayers, Repair, Selective
from agentrt.step import Pass, Reused
from agentrt.trajectory import Trajectory

FULL: Final = "full"
"""The plane of the layers that every unread token gets rows in."""

TAIL: Final = 10  # RelayCaching, L_suf
TAU_DIFF: Final = 1.5  # RelayCaching, tau_diff
TAU_DOWN: Final = 1.45  # RelayCaching, tau_down


class Stages(NamedTuple):
    """Layers `[start, detect)` are computed again for all, `[detect, end]` for the chosen; None repairs nothing."""

    start: int
    detect: int
    end: int


@dataclass(frozen=True)
class RelayCaching(Selective):
    """layers: those repaired, `a-b` with both ends; `middle` (the middle third), `all`, `none`.
    detect: the layer that chooses tokens; `auto` is the second of `layers`.
    ratio: of the tokens that others wrote, those repaired from there on. The last 10 are always among them.
    """

    name: ClassVar[str] = "relay_caching"
    recomputes: ClassVar[str] = "of what others wrote, some layers of the tokens that deviate or matter most"
    holds: ClassVar[str] = "one full cache + the rows each agent computed again"
    source: ClassVar[str] = "RelayCaching (2603.13289); how 30 % are ranked: agentrt"

    layers: Layers = "middle"
    detect: int | str = "auto"
    ratio: float = 0.3

    def __post_init__(self) -> None:
        super().__post_init__()
        check_layers(self.name, self.layers)
        check_ratio(self.name, self.ratio)
        if self.detect != "auto" and (isinstance(self.detect, bool) or not isinstance(self.detect, int)):
            raise SchemeError(f"relay_caching: detect is {self.detect!r}; write `auto` or the number of a layer")

    def fitted(self, backbone_hash: str, adapter_hashes: Mapping[str, str]) -> Self:
        return replace(self, layers=fit_layers(self.name, self.layers, backbone_hash, adapter_hashes))

    def stages(self, layout: Layout) -> Stages | None:
        """Raises SchemeError for layers that the model or the set does not have."""
        layers = neighbours(self.name, resolve_layers(self.name, self.layers, layout.num_layers))
        if not layers:
            return None
        detect = layers[:2][-1] if self.detect == "auto" else int(self.detect)
        if detect not in layers:
            known = f"{layers[0]}-{layers[-1]}"
            raise SchemeError(f"relay_caching: detect is {detect}; the repaired layers are {known}, choose one of them")
        return Stages(layers[0], detect, layers[-1])

    def plane_layers(self, layout: Layout) -> PlaneLayers:
        stages = self.stages(layout)
        if stages is None:
            return PlaneLayers({}, None)
        kept = {KEPT: tuple(range(stages.detect, stages.end + 1))}
        full = {FULL: tuple(range(stages.start, stages.detect))} if stages.start < stages.detect else {}
        return PlaneLayers({**full, **kept}, stages.detect or None)

    def open(self, layout: Layout, store: CacheStore, trajectory: Trajectory) -> "RelayCachingSession":
        return RelayCachingSession(
            self.ratio, self.stages(layout), self.plane_layers(layout).repaired, store, trajectory
        )


class RelayCachingSession(ChoosingSession):
    """Planes: FULL for all unread tokens, KEPT for the chosen."""

    def __init__(
        self,
        ratio: float,
        stages: Stages | None,
        repaired: Mapping[str, tuple[int, ...]],
        store: CacheStore,
        trajectory: Trajectory,
    ) -> None:
        super().__init__(repaired, store, trajectory)
        self._ratio, self._stages = ratio, stages

    def _empty(self, trajectory: Trajectory) -> "RelayCachingSession":
        return RelayCachingSession(self._ratio, self._stages, self._planes, self._store, trajectory)

    def _counts(self, unread: int) -> Mapping[str, int]:
        return {FULL: unread, KEPT: max(share_of(self._ratio, unread), min(TAIL, unread))}

    def _repairs(self, repair: Repair, before: View, after: View) -> list[Pass]:
        assert self._stages is not None
        detect, stop = self._stages.detect, self._stages.end + 1
        return self._choose(repair, before, after, layer=detect, stop=stop, score=deviation_or_influence, written=FULL)


def deviation_or_influence(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, reused: Reused) -> torch.Tensor:
    """How far a row's values turn away from the reused ones, or how much attention the tail pays it, each as a multiple
    of the paper's threshold; the larger counts. The tail itself comes first."""
    n, d = len(q), q.shape[2]
    start, tail = len(reused.keys) - n, min(TAIL, n)
    deviation = 1 - F.cosine_similarity(v.flatten(1).float(), reused.values[start:].flatten(1).float())
    keys = torch.cat([reused.keys[:start], k]).float()  # [T, Hkv, d]
    queries = q[-tail:].float().view(tail, keys.shape[1], -1, d)
    scores = torch.einsum("nkgd,tkd->kgnt", queries, keys) * reused.scale
    weights = scores.masked_fill(~reused.visible[-tail:], float("-inf")).softmax(-1)
    influence = weights.sum((0, 1, 2))[start:]
    score = torch.maximum(_in_units(deviation, TAU_DIFF), _in_units(influence, TAU_DOWN))
    score[-tail:] = float("inf")
    return score


def _in_units(values: torch.Tensor, tau: float) -> torch.Tensor:
    return values / (tau * values.mean()).clamp_min(1e-12)
