"""The attention function registered with transformers: writes a step's K/V rows, then lets every pass attend."""

from typing import Any, Final

import torch
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface

from agentrt.model.choose import Chooser
from agentrt.model.context import Reader, StepContext
from agentrt_kernels.lora_attention import Block, lora_attention

NAME: Final = "agentrt"
_UNSUPPORTED: Final = ("softcap", "s_aux")


def attend(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    scaling: float,
    step: StepContext,
    sliding_window: int | None = None,
    chooser: Chooser | None = None,
    **extra: Any,
) -> tuple[torch.Tensor, None]:
    """query [1, H, rows, d], key and value [1, Hkv, rows, d] of a packed step; returns [1, rows, H, d].

    Every row is written before any row attends. Causality follows from positions; no mask is needed. With a
    `chooser` nobody attends: once the rows are written, it chooses among them if that is due.
    """
    assert not any(extra.get(name) is not None for name in _UNSUPPORTED), "refused when the backbone was loaded"
    layer = int(module.layer_idx)  # type: ignore[arg-type]
    queries, keys, values = (each[0].transpose(0, 1) for each in (query, key, value))  # [rows, heads, d]
    if step.kernels is not None:
        step.kernels.write(layer, keys, values)
    else:
        for targets in (step.kv_writes, step.layer_writes.get(layer)):
            if targets is not None:
                targets.write("k", layer, keys)
                targets.write("v", layer, values)
    for each in step.translations:
        each.run(layer, module)
    if chooser is not None:
        chooser.choose(queries, keys, values, layer, scaling, sliding_window)
        return torch.zeros_like(queries)[None], None
    if step.kernels is not None:
        return step.kernels.attend(layer, queries, scaling, sliding_window)[None], None
    if not step.decode:
        outs = [_read(reader, layer, queries, step, scaling, sliding_window) for reader in step.readers]
        return (outs[0] if len(outs) == 1 else torch.cat(outs))[None], None
    queries = queries.contiguous()
    out = torch.empty_like(queries)
    step.decode.attend(layer, queries, out, scaling, sliding_window)
    for reader in step.readers:
        out[reader.start : reader.end] = _read(reader, layer, queries, step, scaling, sliding_window)
    return out[None], None


def _read(
    reader: Reader, layer: int, queries: torch.Tensor, step: StepContext, scaling: float, window: int | None
) -> torch.Tensor:
    head_dim = queries.shape[2]
    blocks = []
    for piece in reader.overlaid.get(layer, reader.pieces):
        position, keys, column, _ = piece
        k, v = keys.read("k", layer), keys.read("v", layer)
        if reader.masks is not None:
            blocks.append(Block(position, k, v, mask=reader.masks.of(piece, window, k)))
        elif column is None:
            blocks.append(Block(position, k, v))
        else:
            lr, wide = column.read("lr", layer), column.read_wide("lr", layer, head_dim)
            blocks.append(Block(position, k, v, lr, wide))
    up = step.adapters.value_up(reader.path, layer, k.shape[1]) if reader.factored else None
    rows = queries if reader.end - reader.start == len(queries) else queries[reader.start : reader.end]
    return lora_attention(rows, reader.position, blocks, up, scale=scaling, window=window)


def register() -> None:
    """Make `attn_implementation="agentrt"` known. The mask function too: without it transformers builds no mask."""
    AttentionInterface.register(NAME, attend)
    AttentionMaskInterface.register(NAME, _no_mask)


def _no_mask(*_: Any, **__: Any) -> None:
    return None
