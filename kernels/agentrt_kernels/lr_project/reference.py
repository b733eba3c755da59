"""Reference of `lr_project`: torch only."""

import itertools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch

from agentrt_kernels.kv_append.reference import Target
from agentrt_kernels.limits import check_dtype, check_rank


class Deposit(NamedTuple):
    """Rows `[start, end)` of a packed step, and for each adapter that may write, where they go: targets that cover
    `[start, end)` in order. Adapters that are not named write nothing for these rows."""

    start: int
    end: int
    targets: Mapping[int, Sequence[Target]]


def lr_project(
    x: torch.Tensor,
    down: torch.Tensor,
    ranks: Sequence[int],
    deposits: Sequence[Deposit],
    into: Sequence[torch.Tensor],
) -> None:
    """Write x @ [A_1 | A_2 | …] column by column into segments [slots, r] of the adapters' own.

    x [rows, D]; down [D, sum of ranks]. Raises ValueError naming what does not fit.
    """
    check(x, down, ranks, deposits, into)
    edges = list(itertools.accumulate(ranks, initial=0))
    for start, end, targets in deposits:
        columns = x[start:end].to(down.dtype) @ down
        for adapter, pieces in targets.items():
            column = columns[:, edges[adapter] : edges[adapter + 1]]
            for low, high, segment, row in pieces:
                into[segment][row : row + high - low] = column[low - start : high - start].to(into[segment].dtype)


def check(
    x: torch.Tensor,
    down: torch.Tensor,
    ranks: Sequence[int],
    deposits: Sequence[Deposit],
    into: Sequence[torch.Tensor],
) -> None:
    """Raises ValueError naming the argument that is wrong; for debugging, reads every target."""
    for index, rank in enumerate(ranks):
        check_rank(f"ranks[{index}]", rank)
    for dtype in (x.dtype, *(rows.dtype for rows in into)):
        check_product(x, down, sum(ranks), dtype)
    check_deposits(deposits, len(x), ranks, [(rows.shape[0], rows.shape[1]) for rows in into])


def check_product(x: torch.Tensor, down: torch.Tensor, num_columns: int, dtype: torch.dtype) -> None:
    """Raises ValueError where x @ down is no product of `num_columns` that may be kept in rows of `dtype`."""
    check_dtype("x", x.dtype)
    if x.dim() != 2 or tuple(down.shape) != (x.shape[1], num_columns):
        raise ValueError(f"down: shape {tuple(down.shape)}, expected {(x.shape[-1], num_columns)}")
    if down.dtype not in (x.dtype, torch.float32):
        raise ValueError(f"down: dtype {down.dtype} does not go with x's {x.dtype}")
    if dtype not in (x.dtype, torch.float32):
        raise ValueError(f"into: dtype {dtype} does not go with x's {x.dtype}")


def check_deposits(
    deposits: Sequence[Deposit], num_rows: int, ranks: Sequence[int], shapes: Sequence[tuple[int, int]]
) -> None:
    """Raises ValueError for a target outside `num_rows` rows or segments of these shapes (slots, rank)."""
    for index, (start, end, targets) in enumerate(deposits):
        for adapter, pieces in targets.items():
            name = f"deposits[{index}].targets[{adapter}]"
            if not 0 <= adapter < len(ranks):
                raise ValueError(f"{name}: there are {len(ranks)} adapters")
            covered = start
            for low, high, segment, row in pieces:
                if low != covered or high > min(end, num_rows):
                    raise ValueError(f"{name}: rows [{low}, {high}) do not continue at {covered}")
                if not 0 <= segment < len(shapes) or not 0 <= row <= shapes[segment][0] - (high - low):
                    raise ValueError(f"{name}: rows {row} + {high - low} of segment {segment} do not exist")
                if shapes[segment][1] != ranks[adapter]:
                    raise ValueError(f"{name}: segment {segment} has rank {shapes[segment][1]}")
                covered = high
            if covered != end:
                raise ValueError(f"{name}: rows from {covered} to {end} have no target")
