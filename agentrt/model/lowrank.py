"""Low-rank weights by adapter, layer and projection: the one place where peft's orientation is flipped."""

from collections.abc import Mapping
from typing import Final, NamedTuple

import torch

QKV: Final = ("q_proj", "k_proj", "v_proj")
"""The projections of one input."""
KEY: Final = "k_proj"
VALUE: Final = "v_proj"
"""The projections whose low-rank activations are kept in columns."""
ATTENTION: Final = (*QKV, "o_proj")
GATE_UP: Final = ("gate_proj", "up_proj")
"""Those of another."""
MLP: Final = (*GATE_UP, "down_proj")
PROJECTIONS: Final = (*ATTENTION, *MLP)


class Site(NamedTuple):
    """A projection of one layer."""

    layer: int
    projection: str


class LowRank(NamedTuple):
    """y += (x @ down) @ up. `down` is the papers' A, `up` is scaling * B: scaling is applied here and nowhere else."""

    down: torch.Tensor  # [d_in, r]
    up: torch.Tensor  # [r, d_out]

    @property
    def rank(self) -> int:
        return self.down.shape[1]


def from_peft(
    lora_a: torch.Tensor, lora_b: torch.Tensor, scaling: float, dtype: torch.dtype, device: torch.device | str
) -> LowRank:
    """peft stores A [r, d_in] and B [d_out, r]; both are rounded once, after scaling."""
    down, up = lora_a.float().t(), scaling * lora_b.float().t()
    return LowRank(down.contiguous().to(device, dtype), up.contiguous().to(device, dtype))


def pad_rank(weights: LowRank | None, rank: int, like: LowRank) -> LowRank:
    """The same map with `rank` columns (zeros added); None counts as the zero map, shaped as `like`."""
    down = like.down.new_zeros(like.down.shape[0], rank)
    up = like.up.new_zeros(rank, like.up.shape[1])
    if weights is not None:
        down[:, : weights.rank], up[: weights.rank] = weights.down, weights.up
    return LowRank(down, up)


def column_rank(weights: Mapping[Site, LowRank], projection: str) -> int:
    """The widest term of `projection` over all layers: its width in the adapter's column."""
    return max((w.rank for site, w in weights.items() if site.projection == projection), default=0)
