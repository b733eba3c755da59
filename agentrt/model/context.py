"""What the projections and the attention of one step need to know; filled once per step, read in every layer."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch

from agentrt.cache.places import Places
from agentrt.cache.plane import Plane
from agentrt.cache.slots import Runs, length
from agentrt.cache.view import View
from agentrt.model.adapters import AdapterSet
from agentrt.model.keys import KeyMaking
from agentrt.model.masks import Masks
from agentrt.model.pieces import Piece, ordered_pieces, overlaid_pieces, pieces_of
from agentrt.model.ridge import Translation
from agentrt.model.targets import Target, Targets
from agentrt.step import Pass

if TYPE_CHECKING:
    from agentrt.model.decode import StepDecode  # imports numba
    from agentrt.model.kernels import StepKernels  # imports triton


class Rows(NamedTuple):
    """Rows `[start, end)` of the packed step, all of one path."""

    start: int
    end: int
    path: str


class ColumnWrite(NamedTuple):
    """Rows that deposit low-rank activations: by adapter, each into its own plane (targets count from `start`)."""

    start: int
    end: int
    targets: Mapping[str, Targets]

    def extended(self, end: int, targets: Mapping[str, Targets]) -> "ColumnWrite":
        """With the rows that follow, up to `end`, of the same adapters."""
        for name, each in targets.items():
            self.targets[name].add(each.shifted(self.end - self.start))
        return self._replace(end=end)


class Reader(NamedTuple):
    """One pass as attention sees it: its rows, the position of the first, and what it reads.

    `overlaid` is read instead of `pieces` in the layers it names; `masks` are needed where keys or rows skip positions
    and torch attends. The Triton kernels compare positions: for them pieces are in order and there are no masks.
    """

    start: int
    end: int
    position: int
    path: str
    pieces: tuple[Piece, ...]
    factored: bool
    overlaid: Mapping[int, tuple[Piece, ...]]
    masks: Masks | None
    view: View


class _Span(NamedTuple):
    """Rows that read as one: consecutive positions of one path over one view."""

    start: int
    end: int
    position: int
    path: str
    view: View
    kept: Places | None

    def continued_by(self, other: Pass) -> bool:
        return (
            self.kept is None
            and other.kept is None
            and other.path == self.path
            and other.start == self.position + self.end - self.start
            and other.view.truncate(len(self.view)) == self.view
        )

    def reader(self, planes: Mapping[str, Plane], *, masked: bool) -> Reader:
        """`masked`: for torch, which needs masks; what is made on the device for them makes the host wait."""
        rows = self.end - self.start
        first = self.position if rows > 1 else 0
        pieces = tuple(pieces_of(self.view, planes, first))
        factored = any(piece.column is not None for piece in pieces)
        if self.kept is None and not self.view.overlays:
            return Reader(self.start, self.end, self.position, self.path, pieces, factored, {}, None, self.view)
        if not masked:
            overlaid = ordered_pieces(self.view, planes)
            return Reader(self.start, self.end, self.position, self.path, pieces, factored, overlaid, None, self.view)
        device = planes[self.view.plane].device
        places = torch.arange(self.position, self.position + rows) if self.kept is None else self.kept.positions
        overlaid = overlaid_pieces(self.view, planes, first)
        masks = Masks(places.to(device, torch.int32), thinned=self.kept is not None)
        return Reader(self.start, self.end, int(places[0]), self.path, pieces, factored, overlaid, masks, self.view)


class StepContext:
    """Owned by a backbone and handed to its projections at construction; `fill` prepares it for one step."""

    adapters: AdapterSet
    all_rows: list[Rows]
    value_rows: list[Rows]
    kv_writes: Targets
    layer_writes: dict[int, Targets]
    """K/V rows for planes that cover some layers only."""
    column_writes: list[ColumnWrite]
    readers: list[Reader]
    base_key_writes: Targets
    """Those of `kv_writes` that take keys as k_proj alone makes them."""
    translations: list[Translation | KeyMaking]
    """What is computed from slots, once they are written."""

    def __init__(self, kernels: "StepKernels | None" = None, decode: "StepDecode | None" = None) -> None:
        self.decode = decode
        """Serves single rows through the compiled CPU kernel; None: torch does."""
        self.kernels = kernels
        """Run steps through Triton; None: plain torch."""

    def fill(self, passes: Sequence[Pass], planes: Mapping[str, Plane], adapters: AdapterSet) -> None:
        """Neighbours that can share a call do: rows of one path, columns of the same adapters, spans read in one go."""
        self.adapters = adapters
        self.all_rows, self.value_rows = [], []
        self.kv_writes, self.layer_writes, self.column_writes = Targets(), {}, []
        self.translations = []
        spans: list[_Span] = []
        start = 0
        for each in passes:
            end = start + len(each)
            if each.path:
                _add_rows(self.all_rows, Rows(start, end, each.path))
                if each.value == "full":
                    _add_rows(self.value_rows, Rows(start, end, each.path))
            self._add_writes(each, start, planes)
            if spans and spans[-1].continued_by(each):
                spans[-1] = spans[-1]._replace(end=end, view=each.view)
            else:
                spans.append(_Span(start, end, each.start, each.path, each.view, each.kept))
            start = end
        self.base_key_writes = Targets([write for write in self.kv_writes if "k0" in write.stretch.segment])
        self.readers = [span.reader(planes, masked=self.kernels is None) for span in spans]
        if self.kernels is not None:
            self.kernels.begin(self, planes, [position for each in passes for position in each.positions])
        if self.decode is not None:
            self.readers = self.decode.begin(self.readers, adapters)

    def rows_of(self, projection: str) -> Sequence[Rows]:
        """Rows whose path's low-rank term the projection adds."""
        return self.value_rows if projection == "v_proj" else self.all_rows

    def _add_writes(self, each: Pass, start: int, planes: Mapping[str, Plane]) -> None:
        columns: dict[tuple[int, int], dict[str, Targets]] = {}
        for write in each.writes:
            plane = planes[write.plane]
            low = start + write.first_row
            if plane.spec.only is not None:
                for layer in plane.spec.only:
                    self.layer_writes.setdefault(layer, Targets()).add(_targets(low, plane, write.runs))
            elif plane.spec.column is None:
                self.kv_writes.add(_targets(low, plane, write.runs))
            else:
                key = (low, low + length(write.runs))
                columns.setdefault(key, {})[plane.spec.column] = Targets(_targets(0, plane, write.runs))
        for (low, high), targets in columns.items():
            last = self.column_writes[-1] if self.column_writes else None
            if last is not None and last.end == low and last.targets.keys() == targets.keys():
                self.column_writes[-1] = last.extended(high, targets)
            else:
                self.column_writes.append(ColumnWrite(low, high, targets))


def _add_rows(groups: list[Rows], rows: Rows) -> None:
    if groups and (groups[-1].end, groups[-1].path) == (rows.start, rows.path):
        rows = groups.pop()._replace(end=rows.end)
    groups.append(rows)


def _targets(row: int, plane: Plane, runs: Runs) -> list[Target]:
    targets = []
    for run in runs:
        targets.append(Target(row, row + run.size, plane.locate(run)))
        row += run.size
    return targets
