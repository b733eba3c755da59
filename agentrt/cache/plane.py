"""One plane: tensors over some layers, in segments that never move; runs are read and written as slices."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Final, NamedTuple

import numpy as np
import torch

from agentrt.cache.slots import Run, SlotPool

_ALIGNMENT: Final = 64
"""Bytes: a cache line, and a vector register."""


class Part(NamedTuple):
    """One tensor of a plane; `shape` is one token's row in one layer."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    wide_read: int = 0
    """Elements that may be read from a row's start on, past its end (kernels read narrow rows in wide tiles)."""


@dataclass(frozen=True)
class PlaneSpec:
    """What a plane stores. `column` names the adapter whose low-rank activations it holds, None for K/V.

    `only`: the layers it covers, `num_layers` of them, where these are not all of the model's.
    """

    name: str
    num_layers: int
    parts: tuple[Part, ...]
    column: str | None = None
    only: tuple[int, ...] | None = None

    @property
    def layers(self) -> Sequence[int]:
        return range(self.num_layers) if self.only is None else self.only

    @property
    def row_bytes(self) -> int:
        """Bytes of one slot: all layers and parts of one token."""
        return self.num_layers * sum(prod(part.shape) * part.dtype.itemsize for part in self.parts)

    def has(self, part: str) -> bool:
        return any(each.name == part for each in self.parts)


class Stretch:
    """Slots of one run, located: rows `[start, end)` of a segment's tensors.

    A step reads the same rows in every layer, so all layers' views are made at once, when the first is asked for.
    """

    def __init__(
        self, segment: dict[str, torch.Tensor], start: int, end: int, only: tuple[int, ...] | None = None
    ) -> None:
        self.segment, self.start, self.end = segment, start, end
        self._only = only
        self._views: dict[str, tuple[torch.Tensor, ...]] = {}
        self._wide: dict[str, tuple[torch.Tensor, ...]] = {}

    def whole(self) -> "Stretch":
        """All rows of its segment."""
        return Stretch(self.segment, 0, next(iter(self.segment.values())).shape[1], self._only)

    def read(self, part: str, layer: int) -> torch.Tensor:
        """The rows, [end - start, *shape]: a view, never a copy; writing to it writes the plane."""
        views = self._views.get(part)
        if views is None:
            views = self._views[part] = self.segment[part][:, self.start : self.end].unbind(0)
        return views[layer if self._only is None else self._only.index(layer)]

    def read_wide(self, part: str, layer: int, width: int) -> torch.Tensor:
        """[end - start, width]: each row's own elements, then whatever follows them in memory (to be ignored)."""
        wide = self._wide.get(part)
        if wide is None:
            rows = self.segment[part][:, self.start : self.end]
            stretched = rows.as_strided((*rows.shape[:2], width), rows.stride())
            wide = self._wide[part] = stretched.unbind(0)
        return wide[layer]

    def holding(self, part: str) -> "Stretch":
        """The stretch in whose segment the rows of `part` lie."""
        return self

    def place(self, part: str) -> tuple[int, int, int]:
        """Of a plane that covers all layers: the address of the first row in layer 0, the bytes from layer to layer,
        and from row to row."""
        assert self._only is None
        rows = self.segment[part]
        size = rows.element_size()
        layer, row = rows.stride(0) * size, rows.stride(1) * size
        return rows.data_ptr() + self.start * row, layer, row


class PairedStretch(Stretch):
    """Slots whose keys lie in another plane, the same tokens in the same order."""

    def __init__(self, values: Stretch, keys: Stretch) -> None:
        super().__init__(values.segment, values.start, values.end)
        self._keys = keys

    def read(self, part: str, layer: int) -> torch.Tensor:
        return self._keys.read(part, layer) if part == "k" else super().read(part, layer)

    def holding(self, part: str) -> Stretch:
        return self._keys if part == "k" else self

    def place(self, part: str) -> tuple[int, int, int]:
        return self._keys.place(part) if part == "k" else super().place(part)


class Plane:
    """The tensors of one plane and their slot pool.

    All parts are stored [layers, slots, *shape]: what one layer reads is dense.
    """

    def __init__(
        self,
        spec: PlaneSpec,
        device: torch.device,
        segment_slots: int,
        poison: bool = False,
        max_bytes: int | None = None,
    ) -> None:
        """`max_bytes`: what its held slots can come to, if that is known."""
        self.spec = spec
        self.pool = SlotPool(segment_slots, None if max_bytes is None else max_bytes // spec.row_bytes)
        self.device = device
        self.poisons = poison
        """Whether fresh slots are filled with NaN: a plane under test."""
        self._starts: list[int] = []
        self._segments: list[dict[str, torch.Tensor]] = []  # per segment: part -> [layers, slots, *shape]

    @property
    def segments(self) -> Sequence[dict[str, torch.Tensor]]:
        """The tensors of each segment: part -> [layers, slots, *shape]."""
        return self._segments

    @property
    def held_bytes(self) -> int:
        return self.pool.num_held * self.spec.row_bytes

    def locate(self, run: Run) -> Stretch:
        """Where the run lies; the same for every layer, so it is looked up once per step."""
        index = bisect_right(self._starts, run.slot) - 1
        start = run.slot - self._starts[index]
        return Stretch(self._segments[index], start, start + run.size, self.spec.only)

    def materialise(self) -> None:
        """Allocate the tensors of segments the pool has added since. Raises what an allocation that fails raises."""
        for start, end in self.pool.segments[len(self._segments) :]:
            segment = {part.name: self._tensor(part, end - start) for part in self.spec.parts}
            self._starts.append(start)
            self._segments.append(segment)

    def drop_growth(self) -> None:
        """Forget the segments that could not be allocated; their slots are free."""
        self.pool.drop_segments(len(self._segments))

    def poison(self, runs: Iterable[Run]) -> None:
        """Fill freed or fresh slots with NaN where the store asks for it, so that a stale read shows."""
        if self.poisons:
            for run in runs:
                for part in self.spec.parts:
                    for layer in self.spec.layers:
                        self.locate(run).read(part.name, layer).fill_(float("nan"))

    def _tensor(self, part: Part, slots: int) -> torch.Tensor:
        layers = self.spec.num_layers
        if part.wide_read:
            size = layers * slots * prod(part.shape)
            return _zeros((size + part.wide_read,), part.dtype, self.device)[:size].view(layers, slots, *part.shape)
        return _zeros((layers, slots, *part.shape), part.dtype, self.device)


def _zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Zeros. On a CPU straight from the system, whose pages are zero and come when they are written.

    `torch.zeros` would fill them at once, with an OpenMP team of the calling thread beside that of the thread that
    computes, and from then on every step would be slower: see `agentrt.model.compute`.
    """
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    size = prod(shape) * dtype.itemsize
    memory = np.zeros(size + _ALIGNMENT, np.uint8)
    first = -memory.ctypes.data % _ALIGNMENT
    return torch.from_numpy(memory[first : first + size]).view(dtype).view(shape)
