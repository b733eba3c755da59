"""Reference of `kv_append`: torch only."""

from collections.abc import Sequence
from typing import NamedTuple

import torch


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
    for name, tensor in (("v", v), *((f"into_k[{i}]", x) for i, x in enumerate(into_k))):
        if tensor.dtype != k.dtype:
            raise ValueError(f"{name}: dtype {tensor.dtype} differs from k's {k.dtype}")
        if tensor.shape[1:] != k.shape[1:]:
            raise ValueError(f"{name}: rows are {tuple(tensor.shape[1:])}, k's {tuple(k.shape[1:])}")
    if [(x.shape, x.dtype) for x in into_v] != [(x.shape, x.dtype) for x in into_k]:
        raise ValueError("into_v: shapes and dtypes differ from into_k's")
    check_targets(targets, len(k), [len(x) for x in into_k])


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
