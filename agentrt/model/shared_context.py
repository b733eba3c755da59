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
    `since` `[n]`: they take its place only for rows of the same turn, which starts there; an earlier turn is read as
    recorded, since the base path has covered it, but for the reader's own term, which its own pass has left behind.
    None: for all later rows.
    `now` takes the inputs of the pass that reads.
    """

    recording: Recording
    positions: torch.Tensor
    low_rank: bool
    since: torch.Tensor | None = None
    now: Recording = field(default_factory=Recording)


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
    seen = None
    if isinstance(context, Reading):
        key, value, places, readable = _read(module, layer, key, value, context)
        seen = readable & _behind(context.positions, places, sliding_window)
    elif sliding_window is not None:
        rows = torch.arange(query.shape[2], device=query.device)
        seen = _behind(rows, rows, sliding_window)
    groups = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    out = F.scaled_dot_product_attention(query, key, value, attn_mask=seen, is_causal=seen is None, scale=scaling)
    return out.transpose(1, 2), None


def _behind(rows: torch.Tensor, places: torch.Tensor, window: int | None) -> torch.Tensor:
    """Whether rows `[n]` see keys at `places` `[T]` as far as positions tell, `[n, T]`."""
    distance = rows[:, None] - places
    return distance >= 0 if window is None else (distance >= 0) & (distance < window)


def _read(
    module: nn.Module, layer: int, key: torch.Tensor, value: torch.Tensor, context: Reading
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Keys and values `[1, Hkv, T', d]` of the recording and the rows, their places `[T']`, who may read them."""
    keys, values = context.recording.keys[layer], _values(module, layer, context)
    places = torch.arange(keys.shape[2], device=keys.device)
    if context.since is None:
        keys, values = keys.index_copy(2, context.positions, key), values.index_copy(2, context.positions, value)
        return keys, values, places, torch.ones((), dtype=torch.bool, device=keys.device)
    readable = torch.cat([places < context.since[:, None], context.since == context.since[:, None]], 1)
    keys, values = torch.cat([keys, key], 2), torch.cat([values, value], 2)
    return keys, values, torch.cat([places, context.positions]), readable


def _values(module: nn.Module, layer: int, context: Reading) -> torch.Tensor:
    """Values `[1, Hkv, T, d]` of the recorded context as the reader sees them."""
    recorded = context.recording.values[layer]
    if not context.low_rank:
        return recorded
    inputs, project = context.recording.inputs[layer], module.v_proj
    if context.since is None:
        projected: torch.Tensor = project(inputs)  # type: ignore[operator]
    else:
        base = project.base_layer  # type: ignore[union-attr]
        read = inputs.index_copy(1, context.positions, context.now.inputs[layer])  # whose term is added
        projected = base(inputs) + (project(read) - base(read))  # type: ignore[operator]
    return projected.view(1, recorded.shape[2], recorded.shape[1], recorded.shape[3]).transpose(1, 2)


@contextmanager
def recording(decoder: nn.Module, record: Recording | None = None) -> Iterator[Recording]:
    """`record`, or a new recording, that also takes the inputs of every value projection while it is open."""
    record = Recording() if record is None else record
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
