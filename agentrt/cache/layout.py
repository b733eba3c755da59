"""Shape of the cached model, as schemes need it to declare planes: sizes and dtypes, no weights."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import torch

from agentrt.cache.plane import Part, PlaneSpec

KV: Final = "kv"
"""Name of the plane that holds keys and values."""

STATES: Final = "states"
"""Name of the plane that holds the input of one layer."""


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
    hidden_size: int = 0

    def kv_spec(self, name: str = KV, only: tuple[int, ...] | None = None) -> PlaneSpec:
        """Keys after RoPE and values, [num_kv_heads, head_dim] each per token and layer (of `only`, if given)."""
        shape = (self.num_kv_heads, self.head_dim)
        layers = self.num_layers if only is None else len(only)
        return PlaneSpec(name, layers, (Part("k", shape, self.dtype), Part("v", shape, self.dtype)), only=only)

    def states_spec(self, layer: int) -> PlaneSpec:
        """The hidden states that enter `layer`, [hidden_size] per token."""
        return PlaneSpec(STATES, 1, (Part("x", (self.hidden_size,), self.dtype),), only=(layer,))

    def column_spec(self, adapter: str) -> PlaneSpec:
        """X @ A of one adapter's v_proj, unscaled, [rank] per token and layer."""
        part = Part("lr", (self.ranks[adapter],), self.lr_dtype, wide_read=self.head_dim)
        return PlaneSpec(column_plane(adapter), self.num_layers, (part,), column=adapter)
