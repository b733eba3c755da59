"""Integer tables on their way to a device: one transfer that the host does not wait for."""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import torch


class Table(NamedTuple):
    """Rows of `width` integers."""

    rows: Sequence[Sequence[int]]
    width: int


def addresses(layers: Sequence[Sequence[tuple[int, int]]], device: torch.device | str) -> torch.Tensor:
    """Pairs of an address and another number, by layer: [layers, n, 2] int64 on the device. None: one pair of zeros."""
    return torch.tensor([pairs or [(0, 0)] for pairs in layers], dtype=torch.int64).to(device)


def upload(tables: Sequence[Table], device: torch.device | str) -> list[torch.Tensor]:
    """Each table as int32 [len(rows), width] on the device, beginning at a multiple of 16 bytes."""
    numbers: list[int] = []
    places = []
    for table in tables:
        start = len(numbers)
        numbers.extend(itertools.chain.from_iterable(table.rows))
        places.append((start, len(numbers)))
        numbers.extend([0] * (-len(numbers) % 4))
    device = torch.device(device)
    host = torch.tensor(numbers, dtype=torch.int32, pin_memory=device.type == "cuda")
    flat = host.to(device, non_blocking=True)
    return [flat[low:high].view(-1, table.width) for table, (low, high) in zip(tables, places, strict=True)]
