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


KEYS: Final = "keys"
"""Name of the plane that holds, while a turn lasts, the keys as one path reads them."""


def column_plane(adapter: str) -> str:
    """Name of the plane that holds `adapter`'s low-rank activations."""
    return f"lr:{adapter}"


@dataclass(frozen=True)
class Layout:
    """`ranks` maps each adapter to its value rank (0 = no v_proj term), `key_ranks` to its key rank; `invocations` has
    the tokens that activate an adapter, for those trained as activated LoRA."""

    num_layers: int
    num_kv_heads: int
    head_dim: int
    dtype: torch.dtype
    lr_dtype: torch.dtype
    ranks: Mapping[str, int]
    key_ranks: Mapping[str, int] = field(default_factory=dict)
    shared_a: bool = False
    """All adapters have the same A on every cached projection."""
    invocations: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    hidden_size: int = 0

    @property
    def key_adapted(self) -> bool:
        """Whether any adapter has a k_proj term."""
        return any(self.key_ranks.values())

    @property
    def column_adapters(self) -> tuple[str, ...]:
        """The adapters with a value or a key term, in order: each has a column."""
        return tuple(name for name in self.ranks if self.ranks[name] or self.key_ranks.get(name))

    def kv_spec(self, name: str = KV, only: tuple[int, ...] | None = None) -> PlaneSpec:
        """Keys after RoPE and values, [num_kv_heads, head_dim] each per token and layer (of `only`, if given)."""
        shape = (self.num_kv_heads, self.head_dim)
        layers = self.num_layers if only is None else len(only)
        return PlaneSpec(name, layers, (Part("k", shape, self.dtype), Part("v", shape, self.dtype)), only=only)

    def base_specs(self) -> tuple[PlaneSpec, ...]:
        """Of schemes that keep adapters' terms apart: the plane KV, and KEYS where adapters have key terms.

        Norm and RoPE are no linear maps, so a key to which terms can still be added is held as k_proj alone makes it
        ("k0"); what attention reads is made from it once a turn, in KEYS.
        """
        if not self.key_adapted:
            return (self.kv_spec(),)
        key, base, value = (Part(name, (self.num_kv_heads, self.head_dim), self.dtype) for name in ("k", "k0", "v"))
        return PlaneSpec(KV, self.num_layers, (base, value)), PlaneSpec(KEYS, self.num_layers, (key,))

    def states_spec(self, layer: int) -> PlaneSpec:
        """The hidden states that enter `layer`, [hidden_size] per token."""
        return PlaneSpec(STATES, 1, (Part("x", (self.hidden_size,), self.dtype),), only=(layer,))

    def column_spec(self, adapter: str) -> PlaneSpec:
        """X @ A of one adapter's v_proj ("lr") and k_proj ("lrk") where it has them, [rank] per token and layer."""
        parts = []
        if rank := self.ranks[adapter]:
            parts.append(Part("lr", (rank,), self.lr_dtype, wide_read=self.head_dim))
        if rank := self.key_ranks.get(adapter, 0):
            parts.append(Part("lrk", (rank,), self.lr_dtype))
        return PlaneSpec(column_plane(adapter), self.num_layers, tuple(parts), column=adapter)
