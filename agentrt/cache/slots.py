"""Slot ownership of one plane: free extents and reference counts. Integers only, no tensors.

Slots are numbered over segments that never move; a run never crosses a segment's end. `free + held = total` always.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

ROOMY = 4
"""An allocation goes to the middle of an extent at least this many times its size, so that its neighbour can grow."""


class Run(NamedTuple):
    """Slots `[slot, slot + size)` of one plane, holding consecutive positions."""

    slot: int
    size: int


Runs = tuple[Run, ...]


def length(runs: Iterable[Run]) -> int:
    """Number of tokens in `runs`."""
    return sum(run.size for run in runs)


def concat(*parts: Sequence[Run]) -> Runs:
    """`parts` one after another, neighbours in memory joined. Runs of two segments never touch in numbering
    by accident: the pool leaves a gap of one slot between segments."""
    joined: list[Run] = []
    for run in (run for part in parts for run in part if run.size):
        if joined and joined[-1].slot + joined[-1].size == run.slot:
            joined[-1] = Run(joined[-1].slot, joined[-1].size + run.size)
        else:
            joined.append(run)
    return tuple(joined)


def cut(runs: Iterable[Run], start: int, end: int) -> Runs:
    """The runs of tokens `[start, end)`, counted from the first token of `runs`."""
    out = []
    offset = 0
    for run in runs:
        low, high = max(start - offset, 0), min(end - offset, run.size)
        if low < high:
            out.append(Run(run.slot + low, high - low))
        offset += run.size
        if offset >= end:
            break
    return tuple(out)


def _zero_stretches(values: np.ndarray) -> list[tuple[int, int]]:
    """The maximal `[start, end)` where `values` are zero."""
    free = np.concatenate([[False], values == 0, [False]])
    edges = np.flatnonzero(free[1:] != free[:-1]).tolist()
    return list(zip(edges[::2], edges[1::2], strict=True))


class SlotPool:
    """Hands out slots of one plane.

    `allocate` first continues in place after the caller's last slot, then takes the largest free extent; when nothing
    large enough is free it adds a segment (`grow`), each twice as large as the last, as long as `max_slots` allows.
    Runs therefore stay long. Beyond `max_slots` it takes small extents first, and adds only what is missing.
    """

    def __init__(self, segment_slots: int, max_slots: int | None = None) -> None:
        self._next_segment = segment_slots
        self._max_slots = max_slots
        self._free: list[tuple[int, int]] = []  # sorted, disjoint [start, end)
        self._refs = np.zeros(0, dtype=np.int32)
        self.segments: list[tuple[int, int]] = []
        """Slots [start, end) of each segment, in order."""
        self.num_held = 0

    @property
    def num_slots(self) -> int:
        return sum(end - start for start, end in self.segments)

    @property
    def num_free(self) -> int:
        return sum(end - start for start, end in self._free)

    def refcount(self, slot: int) -> int:
        return int(self._refs[slot])

    def num_sole(self, runs: Iterable[Run]) -> int:
        """How many slots of `runs` have a single reference."""
        return sum(int((self._refs[run.slot : run.slot + run.size] == 1).sum()) for run in runs)

    def allocate(self, count: int, after: int | None = None) -> Runs:
        """Take `count` slots, one reference each; `after` is the slot to continue from where it is free."""
        taken: list[Run] = []
        if after is not None and count:
            taken.append(self._take_at(after, count))
            count -= taken[-1].size
        while count:
            largest = max(self._free, key=lambda extent: extent[1] - extent[0], default=(0, 0))
            size = largest[1] - largest[0]
            if size < min(count, self._next_segment // 8) and (self._may_double() or self.num_free < count):
                self._grow(count)
                continue
            start = largest[0] if size < ROOMY * count else largest[0] + size // 2
            if any(start_of == largest[0] for start_of, _ in self.segments):
                start = largest[0]  # at a segment's start nobody before it needs room
            taken.append(self._take_at(start, count))
            count -= taken[-1].size
        return concat(taken)

    def retain(self, runs: Iterable[Run]) -> None:
        """Add one reference to each slot; each must be held already."""
        for run in runs:
            refs = self._refs[run.slot : run.slot + run.size]
            assert refs.all(), "retained a free slot"
            refs += 1

    def release(self, runs: Iterable[Run]) -> None:
        """Drop one reference of each slot; slots without references become free."""
        for run in runs:
            refs = self._refs[run.slot : run.slot + run.size]
            assert refs.all(), "released a free slot"
            refs -= 1
            for start, end in _zero_stretches(refs):
                self._give_back(run.slot + start, run.slot + end)

    def check_integrity(self) -> None:
        """Free extents are sorted, disjoint and unreferenced; everything else is held. For tests."""
        covered = np.zeros_like(self._refs)
        for start, end in self._free:
            assert start < end
            assert not self._refs[start:end].any()
            covered[start:end] += 1
        assert covered.max(initial=0) <= 1
        assert self.num_held == int((self._refs > 0).sum())
        assert self.num_free + self.num_held == self.num_slots

    def drop_segments(self, first: int) -> None:
        """Take back the growth from segment number `first` on, all of whose slots are free; grow less the next time."""
        for segment in self.segments[first:]:
            self._free.remove(segment)
            self._next_segment = max(1, (segment[1] - segment[0]) // 2)
        del self.segments[first:]
        self._refs = self._refs[: self.segments[-1][1] if self.segments else 0]

    def _may_double(self) -> bool:
        return self._max_slots is None or self.num_slots < self._max_slots

    def _grow(self, count: int) -> None:
        size = max(self._next_segment, count)
        if self._max_slots is not None:
            size = max(min(size, self._max_slots - self.num_slots), count - self.num_free)
        self._next_segment = 2 * size
        start = len(self._refs) + 1 if self.segments else 0  # the gap keeps segments apart
        self._refs = np.concatenate([self._refs, np.zeros(start + size - len(self._refs), dtype=np.int32)])
        self.segments.append((start, start + size))
        self._free.append((start, start + size))

    def _take_at(self, slot: int, count: int) -> Run:
        """Take up to `count` slots from `slot` on, as far as they are free; perhaps none."""
        index = bisect_right(self._free, (slot, len(self._refs) + 1)) - 1
        if index < 0 or not self._free[index][0] <= slot < self._free[index][1]:
            return Run(slot, 0)
        start, end = self._free.pop(index)
        stop = min(slot + count, end)
        for piece in ((start, slot), (stop, end)):
            if piece[0] < piece[1]:
                insort(self._free, piece)
        self._refs[slot:stop] = 1
        self.num_held += stop - slot
        return Run(slot, stop - slot)

    def _give_back(self, start: int, end: int) -> None:
        self.num_held -= end - start
        index = bisect_left(self._free, (start, end))
        if index < len(self._free) and self._free[index][0] == end:
            end = self._free.pop(index)[1]
        if index and self._free[index - 1][1] == start:
            start = self._free.pop(index - 1)[0]
        insort(self._free, (start, end))
