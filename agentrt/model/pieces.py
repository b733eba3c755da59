"""What a pass reads, cut into pieces that are slices of memory; overlays are read beside what they replace."""

import itertools
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

import torch

from agentrt.cache.layout import KEYS
from agentrt.cache.plane import PairedStretch, Plane, Stretch
from agentrt.cache.slots import Run, Runs
from agentrt.cache.view import Column, Overlay, View

HIDDEN: Final = torch.iinfo(torch.int32).max
"""The place of a key that no row sees."""

SKIP: Final = 64
"""Replaced rows in a row from which leaving them out pays for a further piece; fewer are read and hidden."""


class Piece(NamedTuple):
    """Consecutive positions from `position`, contiguous in every plane they are read from.

    With `places` [T] these are the keys' positions, and some keys may be hidden.
    """

    position: int
    keys: Stretch
    column: Stretch | None
    places: torch.Tensor | None = None


def pieces_of(view: View, planes: Mapping[str, Plane], first: int) -> list[Piece]:
    """Cut the view where its K/V runs or its column's runs end, so that each piece is a slice everywhere.

    Also at the pass's `first` position: what lies before is visible to all its rows and needs no mask.
    """
    keys = _placed(0, view.runs)
    column = _column(view.column)
    apart = _placed(0, view.keys)
    edges = sorted({first, *(edge for start, end, _ in (*keys, *column, *apart) for edge in (start, end))})
    sources = ((view.plane, keys), (view.column.plane if view.column else "", column), (KEYS, apart))
    pieces = []
    for low, high in itertools.pairwise(edges):
        stretches = []
        for plane, placed in sources:
            hit = next(((start, slot) for start, end, slot in placed if start <= low < end), None)
            run = None if hit is None else Run(hit[1] + low - hit[0], high - low)
            stretches.append(None if run is None else planes[plane].locate(run))
        rows, low_rank, own = stretches
        assert rows is not None
        pieces.append(Piece(low, rows if own is None else PairedStretch(rows, own), low_rank))
    return pieces


def _column(column: Column | None) -> list[tuple[int, int, int]]:
    return [] if column is None else _placed(column.start, column.runs)


def _placed(position: int, runs: Runs) -> list[tuple[int, int, int]]:
    """(first position, end position, first slot) of each run."""
    placed = []
    for run in runs:
        placed.append((position, position + run.size, run.slot))
        position += run.size
    return placed


def overlaid_pieces(view: View, planes: Mapping[str, Plane], first: int) -> dict[int, tuple[Piece, ...]]:
    """By layer, the pieces of a view in the layers that its overlays cover.

    The order of keys means nothing to attention, so an agent's own rows stay together, and the rows they replace are
    hidden where they lie: no prefix is gathered. An overlay whose places are not known yet is read by nobody yet.
    """
    found: dict[int, tuple[Piece, ...]] = {}
    for overlay, own in _readable(view):
        pieces = (*_not_replaced(view, planes, own, first), *_own(overlay, planes, own, first))
        found.update(dict.fromkeys(planes[overlay.plane].spec.layers, pieces))
    return found


def _readable(view: View) -> Iterator[tuple[Overlay, torch.Tensor]]:
    """The overlays whose places are known, with the positions of their rows, [n] on the CPU."""
    assert view.column is None or not view.overlays, "overlays hold values in full"
    for overlay in view.overlays:
        if overlay.runs and all(places.known for places in overlay.places):
            yield overlay, torch.cat([places.positions for places in overlay.places])


def _not_replaced(view: View, planes: Mapping[str, Plane], own: torch.Tensor, first: int) -> Iterator[Piece]:
    plane = planes[view.plane]
    places = torch.arange(len(view), dtype=torch.int32)
    places[own] = HIDDEN
    edges = (own.diff() > 1).nonzero().flatten() + 1
    starts = own[torch.cat([edges.new_zeros(1), edges])].tolist()
    ends = (own[torch.cat([edges - 1, edges.new_tensor([-1])])] + 1).tolist()
    skipped = [(start, end) for start, end in zip(starts, ends, strict=True) if end - start >= SKIP]
    for start, end, slot in _placed(0, view.runs):
        cuts = {start, end, *(edge for pair in skipped for edge in pair), first}
        for low, high in itertools.pairwise(sorted(cut for cut in cuts if start <= cut <= end)):
            hidden = places[low:high] == HIDDEN
            if not hidden.all():
                at = places[low:high].to(plane.device) if hidden.any() else None
                yield Piece(low, plane.locate(Run(slot + low - start, high - low)), None, at)


def _own(overlay: Overlay, planes: Mapping[str, Plane], own: torch.Tensor, first: int) -> Iterator[Piece]:
    plane = planes[overlay.plane]
    middle = int(torch.searchsorted(own, first))
    for start, end, slot in _placed(0, overlay.runs):
        for low, high in itertools.pairwise(sorted({start, min(max(start, middle), end), end})):
            at = own[low:high]
            consecutive = int(at[-1] - at[0]) == high - low - 1
            stretch = plane.locate(Run(slot + low - start, high - low))
            yield Piece(int(at[0]), stretch, None, None if consecutive else at.to(plane.device))


def ordered_pieces(view: View, planes: Mapping[str, Plane]) -> dict[int, tuple[Piece, ...]]:
    """As `overlaid_pieces`, but in the order of positions, without gaps and none hidden: a slot table."""
    found: dict[int, tuple[Piece, ...]] = {}
    for overlay, own in _readable(view):
        owner = [view.plane] * len(view.runs) + [overlay.plane] * len(overlay.runs)
        slots, runs = _slots(view.runs, 0)
        slots[own.long()], runs[own.long()] = _slots(overlay.runs, len(view.runs))
        cuts = ((slots.diff() != 1) | (runs.diff() != 0)).nonzero().flatten() + 1
        pieces = [
            Piece(low, planes[owner[int(runs[low])]].locate(Run(int(slots[low]), high - low)), None)
            for low, high in itertools.pairwise([0, *cuts.tolist(), len(view)])
        ]
        found.update(dict.fromkeys(planes[overlay.plane].spec.layers, tuple(pieces)))
    return found


def _slots(runs: Runs, first: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Of each row: its slot, and the number of its run, counted from `first`."""
    slots = torch.cat([torch.arange(run.slot, run.slot + run.size) for run in runs])
    sizes = torch.tensor([run.size for run in runs])
    return slots, torch.arange(first, first + len(runs)).repeat_interleave(sizes)
