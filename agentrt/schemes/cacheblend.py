"""cacheblend: two layers again for all that others wrote, the other layers for the tokens that changed most there."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final

import torch

from agentrt.cache.layout import Layout
from agentrt.cache.store import CacheStore
from agentrt.cache.view import View
from agentrt.errors import SchemeError
from agentrt.schemes.choosing import KEPT, ChoosingSession
from agentrt.schemes.layer_sets import check_ratio, share_of
from agentrt.schemes.selective import PlaneLayers, Repair, Selective
from agentrt.step import Pass, Reused
from agentrt.trajectory import Trajectory

CHECK_LAYER: Final = 1  # CacheBlend's released code
CHECKED: Final = "checked"
"""The plane of the layers that every unread token gets rows in."""


@dataclass(frozen=True)
class CacheBlend(Selective):
    """ratio: of the tokens that others wrote, those computed again in all layers."""

    name: ClassVar[str] = "cacheblend"
    recomputes: ClassVar[str] = "of what others wrote, two layers, and all layers of the tokens that differ most"
    holds: ClassVar[str] = "one full cache + the rows each agent computed again"
    source: ClassVar[str] = "CacheBlend (2405.16444)"

    ratio: float = 0.3

    def __post_init__(self) -> None:
        super().__post_init__()
        check_ratio(self.name, self.ratio)

    def plane_layers(self, layout: Layout) -> PlaneLayers:
        if layout.num_layers <= CHECK_LAYER:
            raise SchemeError(f"cacheblend: tokens are chosen at layer {CHECK_LAYER}, and the model has no such layer")
        rest = tuple(range(CHECK_LAYER + 1, layout.num_layers))
        checked = {CHECKED: tuple(range(CHECK_LAYER + 1))}
        return PlaneLayers({**checked, KEPT: rest}, CHECK_LAYER) if rest else PlaneLayers(checked, None)

    def open(self, layout: Layout, store: CacheStore, trajectory: Trajectory) -> "CacheBlendSession":
        return CacheBlendSession(self.ratio, layout.num_layers, self.plane_layers(layout).repaired, store, trajectory)


class CacheBlendSession(ChoosingSession):
    """Planes: CHECKED for all unread tokens, KEPT for the chosen."""

    def __init__(
        self,
        ratio: float,
        num_layers: int,
        repaired: Mapping[str, tuple[int, ...]],
        store: CacheStore,
        trajectory: Trajectory,
    ) -> None:
        super().__init__(repaired, store, trajectory)
        self._ratio, self._num_layers = ratio, num_layers

    def _empty(self, trajectory: Trajectory) -> "CacheBlendSession":
        return CacheBlendSession(self._ratio, self._num_layers, self._planes, self._store, trajectory)

    def _counts(self, unread: int) -> Mapping[str, int]:
        return {CHECKED: unread, KEPT: share_of(self._ratio, unread)}

    def _repairs(self, repair: Repair, before: View, after: View) -> list[Pass]:
        return self._choose(
            repair, before, after, layer=CHECK_LAYER, stop=self._num_layers, score=value_change, written=CHECKED
        )


def value_change(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, reused: Reused) -> torch.Tensor:
    """The squared change of each row's values, summed over heads."""
    return (v.float() - reused.values[-len(v) :].float()).square().sum((1, 2))
