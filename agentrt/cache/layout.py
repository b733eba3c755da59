"""Shape of the cached model, as schemes need it to declare planes: sizes and dtypes, no weights."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import torch

from agentrt.cache.plane import Part, PlaneSpec

KV: Final = "kv"
"""Name of the plane that holds keys and values."""


def column_plane(adapter: str) -> str:
    """Name of the plane that holds `adapter`'s low-rank activations."""
    return f"lr:{adapter}"


@dataclass(frozen=True)
class Layout:
    """`ranks` maps each adapter to its value rank (0 = no v_proj term); `key_adapted` names those that adapt k_proj;
    `invocations` has the tokens that activate an adapter, for those trained as activated LoRA."""

    num_layers: int
    num_kv_heads: int
    head_dim: int
    dtype: torch.dtype
    lr_dtype: torch.dtype
    ranks: Mapping[str, int]
    key_adapted: frozenset[str] = frozenset()
    shared_value_a: bool = False
    """All adapters have the same A on every cached projection."""
    invocations: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def kv_spec(self, name: str = KV) -> PlaneSpec:
        """Keys after RoPE and values, [num_kv_heads, head_dim] each per token and layer."""
        shape = (self.num_kv_heads, self.head_dim)
        return PlaneSpec(name, self.num_layers, (Part("k", shape, self.dtype), Part("v", shape, self.dtype)))

    def column_spec(self, adapter: str) -> PlaneSpec:
        """X @ A of one adapter's v_proj, unscaled, [rank] per token and layer."""
        part = Part("lr", (self.ranks[adapter],), self.lr_dtype, wide_read=self.head_dim)
        return PlaneSpec(column_plane(adapter), self.num_layers, (part,), column=adapter)
