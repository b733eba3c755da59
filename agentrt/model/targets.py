"""Where rows of a packed step are written: stretches of planes, in every layer the same."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

import torch

from agentrt.cache.plane import Stretch


class Target(NamedTuple):
    """Rows `[start, end)` of the packed step and where they are written."""

    start: int
    end: int
    stretch: Stretch


class _Singles(NamedTuple):
    """Single rows of the step and, one for one, their slots in the whole of a segment."""

    rows: slice | torch.Tensor
    slots: torch.Tensor
    segment: Stretch


class Targets:
    """Targets of one step, all added before the first is written.

    Torch writes the single rows of a segment together: in a step of many sessions that decode, a call for each would
    take longer than the rows themselves.
    """

    def __init__(self, targets: Sequence[Target] = ()) -> None:
        self._targets = list(targets)

    def __iter__(self) -> Iterator[Target]:
        return iter(self._targets)

    def __len__(self) -> int:
        return len(self._targets)

    def add(self, targets: Sequence[Target]) -> None:
        self._targets += targets

    def shifted(self, rows: int) -> list[Target]:
        """The same for rows that come so many later."""
        return [Target(start + rows, end + rows, stretch) for start, end, stretch in self._targets]

    def write(self, part: str, layer: int, rows: torch.Tensor) -> None:
        """Write `part` of a layer from rows [rows, ...], the packed step's; planes without that part are left alone."""
        stretches, singles = self._grouped
        for start, end, stretch in stretches:
            if part in stretch.segment:
                target = stretch.read(part, layer)
                target.copy_((rows if end - start == len(rows) else rows[start:end]).view(target.shape))
        for at, slots, segment in singles:
            if part in segment.segment:
                target = segment.read(part, layer)
                target.index_copy_(0, slots, rows[at].view(-1, *target.shape[1:]).to(target.dtype))

    @cached_property
    def _grouped(self) -> tuple[list[Target], list[_Singles]]:
        """Targets that are written one by one, and those that are not: single rows that share a segment."""
        alone: list[Target] = []
        by_segment: dict[int, list[Target]] = {}
        for each in self._targets:
            group = alone if each.end - each.start > 1 else by_segment.setdefault(id(each.stretch.segment), [])
            group.append(each)
        alone += [group[0] for group in by_segment.values() if len(group) == 1]
        return alone, [_singles(group) for group in by_segment.values() if len(group) > 1]


def _singles(group: Sequence[Target]) -> _Singles:
    segment = group[0].stretch.whole()
    device = next(iter(segment.segment.values())).device
    rows = [each.start for each in group]
    slots = torch.tensor([each.stretch.start for each in group], device=device)
    if rows == list(range(rows[0], rows[0] + len(rows))):
        return _Singles(slice(rows[0], rows[0] + len(rows)), slots, segment)
    return _Singles(torch.tensor(rows, device=device), slots, segment)
