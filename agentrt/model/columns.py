"""What projections leave in planes besides their outputs: low-rank activations, and keys without any term."""

from collections.abc import Callable, Mapping

import torch

from agentrt.model.context import ColumnWrite, StepContext


def write_columns(context: StepContext, layer: int, hidden: torch.Tensor) -> None:
    """Deposit X @ [A | A | …] of a layer's v_proj and k_proj, whose input is `hidden` [rows, d_in]: one product each
    per group of rows."""
    adapters = context.adapters
    for write in context.column_writes:
        rows = hidden if write.end - write.start == len(hidden) else hidden[write.start : write.end]
        _deposit("lr", write, rows, layer, adapters.ranks, adapters.value_down, adapters.value_downs)
        if adapters.key_names:
            _deposit("lrk", write, rows, layer, adapters.key_ranks, adapters.key_down, adapters.key_downs)


def _deposit(
    part: str,
    write: ColumnWrite,
    rows: torch.Tensor,
    layer: int,
    ranks: Mapping[str, int],
    down: Callable[[str, int], torch.Tensor],
    downs: Callable[[int], torch.Tensor],
) -> None:
    names = [name for name in ranks if ranks[name]]
    wanted = [name for name in names if name in write.targets]
    if not wanted:
        return
    if len(wanted) == 1:
        names, weights = wanted, down(wanted[0], layer)
    else:
        weights = downs(layer)
    columns = torch.split(rows.to(weights.dtype) @ weights, [ranks[name] for name in names], 1)
    for name, column in zip(names, columns, strict=True):
        targets = write.targets.get(name, ())
        for start, end, stretch in targets:
            stretch.read(part, layer).copy_(column if len(targets) == 1 else column[start:end])


def write_base_keys(context: StepContext, layer: int, rows: torch.Tensor) -> None:
    """Keep the base product of a layer's k_proj, [rows, num_kv_heads * head_dim], before any term is added to it."""
    for start, end, stretch in context.base_key_writes:
        target = stretch.read("k0", layer)
        target.copy_(rows[start:end].view(target.shape))
