"""The low-rank activations that projections leave in planes besides their outputs."""

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
        if name in write.targets:
            write.targets[name].write(part, layer, column)
