"""Reference of `kv_append`: torch only."""

from collections.abc import Sequence
from typing import NamedTuple

import torch

from agentrt_kernels.limits import check_dtype, check_head_dim


class Target(NamedTuple):
    """Rows `[start, end)` of a packed step go to rows from `row` on of the tensor `segment`."""

    start: int
    end: int
    segment: int
    row: int


def kv_append(
    k: torch.Tensor,
    v: torch.Tensor,
    targets: Sequence[Target],
    into_k: Sequence[torch.Tensor],
    into_v: Sequence[torch.Tensor],
) -> None:
    """Copy rows of k and v [rows, Hkv, d] into segments [slots, Hkv, d]. Raises ValueError naming what does not fit."""
    check(k, v, targets, into_k, into_v)
    for start, end, segment, row in targets:
        into_k[segment][row : row + end - start] = k[start:end]
        into_v[segment][row : row + end - start] = v[start:end]


def check(
    k: torch.Tensor,
    v: torch.Tensor,
    targets: Sequence[Target],
    into_k: Sequence[torch.Tensor],
    into_v: Sequence[torch.Tensor],
) -> None:
    """Raises ValueError naming the argument that is wrong; for debugging, reads every target."""
    for index, segment in enumerate(into_k):
        check_rows(k, v, segment, f"into_k[{index}]")
    if [(x.shape, x.dtype) for x in into_v] != [(x.shape, x.dtype) for x in into_k]:
        raise ValueError("into_v: shapes and dtypes differ from into_k's")
    check_targets(targets, len(k), [len(x) for x in into_k])


def check_rows(k: torch.Tensor, v: torch.Tensor, into: torch.Tensor, name: str = "into") -> None:
    """Raises ValueError for rows [rows, Hkv, d] that no kernel takes, or that do not fit the segment `into`, which the
    message calls `name`."""
    if k.dim() != 3:
        raise ValueError(f"k: expected [rows, heads, head_dim], got shape {tuple(k.shape)}")
    check_head_dim("k", k.shape[2])
    check_dtype("k", k.dtype)
    if v.shape != k.shape:
        raise ValueError(f"v: shape {tuple(v.shape)} differs from k's {tuple(k.shape)}")
    if into.shape[1:] != k.shape[1:]:
        raise ValueError(f"{name}: rows are {tuple(into.shape[1:])}, k's {tuple(k.shape[1:])}")
    for other, tensor in (("v", v), (name, into)):
        if tensor.dtype != k.dtype:
            raise ValueError(f"{other}: dtype {tensor.dtype} differs from k's {k.dtype}")


def check_targets(targets: Sequence[Target], num_rows: int, sizes: Sequence[int]) -> None:
    """Raises ValueError for a target outside `num_rows` rows or segments of these sizes, and for a slot written twice:
    which of its rows would stay is then left to chance."""
    written: dict[int, set[int]] = {}
    for index, (start, end, segment, row) in enumerate(targets):
        if not 0 <= start < end <= num_rows:
            raise ValueError(f"targets[{index}]: [{start}, {end}) are no rows of {num_rows}")
        if not 0 <= segment < len(sizes) or not 0 <= row <= sizes[segment] - (end - start):
            raise ValueError(f"targets[{index}]: rows {row} + {end - start} of segment {segment} do not exist")
        slots = set(range(row, row + end - start))
        if not slots.isdisjoint(written.setdefault(segment, set())):
            raise ValueError(f"targets[{index}]: rows {row} + {end - start} of segment {segment} are written twice")
        written[segment] |= slots
