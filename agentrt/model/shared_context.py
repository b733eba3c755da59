"""Attention for training a role on a context that other roles have run through the model.

Under a sharing scheme a role does not process what it reads: it attends to keys and values that another path left
behind, plus, where the scheme keeps LR caches, its own low-rank term of the other path's hidden states (PReCache,
arXiv 2609.34054, section 3). A role that only ever saw a context processed by itself cannot read one of another.
So a context is recorded once, without gradients; then only the role's own rows run, and read it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch import nn
from torch.nn import functional as F
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface

NAME: Final = "agentrt-training"


@dataclass
class Recording:
    """A context of T tokens as a path left it, by layer: keys, values `[1, Hkv, T, d]`, value inputs `[1, T, D]`."""

    keys: dict[int, torch.Tensor] = field(default_factory=dict)
    values: dict[int, torch.Tensor] = field(default_factory=dict)
    inputs: dict[int, torch.Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class Reading:
    """Rows at `positions` `[n]` that attend to a recording, in which they take the place of what was recorded there.

    `low_rank`: values are the base values of the recorded inputs plus the reader's own term, as with an LR cache;
    else they are the values as recorded.
    """

    recording: Recording
    positions: torch.Tensor
    low_rank: bool


def attend(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    scaling: float,
    context: Recording | Reading | None = None,
    sliding_window: int | None = None,
    **extra: Any,
) -> tuple[torch.Tensor, None]:
    """query `[B, H, rows, d]`, key and value `[B, Hkv, rows, d]`; returns `[B, rows, H, d]`. Causal by position."""
    layer = int(module.layer_idx)  # type: ignore[arg-type]
    if isinstance(context, Recording):
        context.keys[layer], context.values[layer] = key, value
    positions = None
    if isinstance(context, Reading):
        positions = context.positions
        key = context.recording.keys[layer].index_copy(2, positions, key)
        value = _values(module, layer, context).index_copy(2, positions, value)
    groups = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    if positions is None and sliding_window is None:
        out = F.scaled_dot_product_attention(query, key, value, is_causal=True, scale=scaling)
    else:
        rows = torch.arange(query.shape[2], device=query.device) if positions is None else positions
        behind = rows[:, None] - torch.arange(key.shape[2], device=query.device)
        seen = (behind >= 0) & (behind < (sliding_window or key.shape[2]))
        out = F.scaled_dot_product_attention(query, key, value, attn_mask=seen, scale=scaling)
    return out.transpose(1, 2), None


def _values(module: nn.Module, layer: int, context: Reading) -> torch.Tensor:
    """Values `[1, Hkv, T, d]` of the recorded context as the reader sees them."""
    recorded = context.recording.values[layer]
    if not context.low_rank:
        return recorded
    projected: torch.Tensor = module.v_proj(context.recording.inputs[layer])  # type: ignore[operator]
    return projected.view(1, recorded.shape[2], recorded.shape[1], recorded.shape[3]).transpose(1, 2)


@contextmanager
def recording(decoder: nn.Module) -> Iterator[Recording]:
    """A recording that also takes the inputs of every value projection of `decoder` while it is open."""
    record = Recording()
    handles = []
    for module in decoder.modules():
        if hasattr(module, "v_proj") and hasattr(module, "layer_idx"):
            layer = int(module.layer_idx)  # type: ignore[arg-type]

            def keep(_: nn.Module, arguments: tuple[torch.Tensor, ...], at: int = layer) -> None:
                record.inputs[at] = arguments[0]

            handles.append(module.v_proj.register_forward_pre_hook(keep))  # type: ignore[union-attr]
    try:
        yield record
    finally:
        for handle in handles:
            handle.remove()


def register() -> None:
    """Make `attn_implementation=NAME` known, with no mask of transformers' own."""
    AttentionInterface.register(NAME, attend)
    AttentionMaskInterface.register(NAME, _no_mask)


def _no_mask(*_: Any, **__: Any) -> None:
    return None
