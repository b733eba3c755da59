"""Integer tables on their way to a device: one transfer that the host does not wait for."""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import torch


class Table(NamedTuple):
    """Rows of `width` integers."""

    rows: Sequence[Sequence[int]]
    width: int

    def padded(self, least: int = 1) -> "Table":
        """With rows of zeros, for which kernels do nothing, up to a power of two and to `least`; none stays none."""
        count = len(self.rows)
        size = max(least, 1 << (count - 1).bit_length()) if count else 0
        return Table([*self.rows, *[(0,) * self.width] * (size - count)], self.width)


def send(numbers: torch.Tensor, device: torch.device | str) -> torch.Tensor:
    """Numbers of the host's on the device. The host does not wait for a GPU to take them."""
    return _pinned(numbers, device).to(device, non_blocking=True)


def addresses(layers: Sequence[Sequence[tuple[int, int]]], device: torch.device | str) -> torch.Tensor:
    """Pairs of an address and another number, by layer: [layers, n, 2] int64 on the device. None: one pair of zeros."""
    return send(torch.tensor([pairs or [(0, 0)] for pairs in layers], dtype=torch.int64), device)


def upload(tables: Sequence[Table], device: torch.device | str) -> list[torch.Tensor]:
    """Each table as int32 [len(rows), width] on the device, beginning at a multiple of 16 bytes."""
    return views(send(flatten(tables, device), device), tables)


def flatten(tables: Sequence[Table], device: torch.device | str) -> torch.Tensor:
    """The tables one after another, int32 on the host, in memory that `device` copies while the host goes on."""
    numbers: list[int] = []
    for table in tables:
        numbers.extend(itertools.chain.from_iterable(table.rows))
        numbers.extend([0] * (-len(numbers) % 4))
    return _pinned(torch.tensor(numbers, dtype=torch.int32), device)


def _pinned(numbers: torch.Tensor, device: torch.device | str) -> torch.Tensor:
    return numbers.pin_memory() if torch.device(device).type == "cuda" else numbers


def views(flat: torch.Tensor, tables: Sequence[Table]) -> list[torch.Tensor]:
    """Where each table lies in what `flatten` made of them, [len(rows), width]."""
    found, start = [], 0
    for table in tables:
        end = start + len(table.rows) * table.width
        found.append(flat[start:end].view(-1, table.width))
        start = end + -end % 4
    return found
