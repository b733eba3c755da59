"""Keys as one path reads them, from base keys and its low-rank column: made once a turn, in slots of their own.

RoPE turns a key by its position and k_norm divides it by its length, so, unlike a value, a key's term cannot be added
after attention. What is shared is K0, the product of k_proj alone, and X @ A; the reader makes

    K = rope(norm(K0 + scaling * X A B))

which without a norm is rope(K0) + rope(scaling * X A B).
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import nn

from agentrt.cache.layout import KEYS, KV
from agentrt.cache.plane import Plane, Stretch
from agentrt.model.adapters import AdapterSet
from agentrt.model.lowrank import KEY, Site
from agentrt.model.ridge import rotate, rotates
from agentrt.step import MakeKeys, Pass


class KeyMaking(NamedTuple):
    """One `MakeKeys` of a step, located."""

    path: str
    base: tuple[Stretch, ...]
    column: tuple[Stretch, ...]
    targets: tuple[Stretch, ...]
    cos: torch.Tensor  # [n, 1, d], as sin
    sin: torch.Tensor
    adapters: AdapterSet

    def run(self, layer: int, attention: nn.Module) -> None:
        """Fill the target rows of one layer, whose module this is. Its transient is one layer's keys."""
        keys = torch.cat([each.read("k0", layer) for each in self.base]).float()
        weights = self.adapters.weights[self.path].get(Site(layer, KEY)) if self.column else None
        if weights is not None:
            low = torch.cat([each.read("lrk", layer)[:, : weights.rank] for each in self.column])
            keys += (low.to(weights.up.dtype) @ weights.up).view(keys.shape)
        norm = getattr(attention, "k_norm", None)
        keys = keys if norm is None else norm(keys)
        keys = rotate(keys, self.cos, self.sin) if rotates(attention) else keys
        start = 0
        for each in self.targets:
            rows = each.read("k", layer)
            rows.copy_(keys[start : start + len(rows)])
            start += len(rows)


def locate_keys(
    passes: Sequence[Pass], planes: Mapping[str, Plane], adapters: AdapterSet, rotary: Any
) -> list[KeyMaking]:
    """Every `MakeKeys` of a step's passes. `rotary(positions)` gives fp32 cos and sin, [1, n, d]."""

    def place(each: MakeKeys) -> KeyMaking:
        cos, sin = rotary(range(each.start, each.end))
        base, targets = (
            tuple(planes[name].locate(run) for run in runs) for name, runs in ((KV, each.base), (KEYS, each.target))
        )
        column = each.column
        low = () if column is None else tuple(planes[column.plane].locate(run) for run in column.runs)
        return KeyMaking(each.path, base, low, targets, cos[0][:, None], sin[0][:, None], adapters)

    return [place(each) for one in passes for each in one.keys]
