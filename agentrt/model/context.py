"""What the projections and the attention of one step need to know; filled once per step, read in every layer."""

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch

from agentrt.cache.plane import Plane, Stretch
from agentrt.cache.slots import Run, Runs, length
from agentrt.cache.view import Column, View
from agentrt.model.adapters import AdapterSet
from agentrt.step import Pass, Step

if TYPE_CHECKING:
    from agentrt.model.kernels import StepKernels  # imports triton


class Rows(NamedTuple):
    """Rows `[start, end)` of the packed step, all of one path."""

    start: int
    end: int
    path: str


class Target(NamedTuple):
    """Rows `[start, end)` of the packed step and where they are written."""

    start: int
    end: int
    stretch: Stretch


class ColumnWrite(NamedTuple):
    """Rows that deposit low-rank activations: by adapter, each into its own plane (targets count from `start`)."""

    start: int
    end: int
    targets: Mapping[str, tuple[Target, ...]]


class Piece(NamedTuple):
    """Consecutive positions from `position`, contiguous in every plane they are read from."""

    position: int
    keys: Stretch
    column: Stretch | None


class Reader(NamedTuple):
    """One pass as attention sees it: its rows, the position of the first, and what it reads."""

    start: int
    end: int
    position: int
    path: str
    pieces: tuple[Piece, ...]
    factored: bool


class StepContext:
    """Owned by a backbone and handed to its projections at construction; `fill` prepares it for one step."""

    adapters: AdapterSet
    all_rows: list[Rows]
    value_rows: list[Rows]
    kv_writes: list[Target]
    column_writes: list[ColumnWrite]
    readers: list[Reader]

    def __init__(self, kernels: "StepKernels | None" = None) -> None:
        self.kernels = kernels
        """Runs steps through Triton; None: plain torch."""

    def fill(self, step: Step, planes: Mapping[str, Plane], adapters: AdapterSet) -> None:
        self.adapters = adapters
        self.all_rows, self.value_rows = [], []
        self.kv_writes, self.column_writes, self.readers = [], [], []
        start = 0
        for each in step.passes:
            end = start + len(each)
            if each.path:
                rows = Rows(start, end, each.path)
                self.all_rows.append(rows)
                if each.value == "full":
                    self.value_rows.append(rows)
            self._add_writes(each, start, planes)
            pieces = tuple(_pieces(each.view, planes, each.start if len(each) > 1 else 0))
            factored = any(piece.column is not None for piece in pieces)
            self.readers.append(Reader(start, end, each.start, each.path, pieces, factored))
            start = end
        if self.kernels is not None:
            self.kernels.begin(self, planes, [at for each in step.passes for at in range(each.start, each.end)])

    def rows_of(self, projection: str) -> Sequence[Rows]:
        """Rows whose path's low-rank term the projection adds."""
        return self.value_rows if projection == "v_proj" else self.all_rows

    def _add_writes(self, each: Pass, start: int, planes: Mapping[str, Plane]) -> None:
        columns: dict[tuple[int, int], dict[str, tuple[Target, ...]]] = {}
        for write in each.writes:
            plane = planes[write.plane]
            low = start + write.first_row
            if plane.spec.column is None:
                self.kv_writes.extend(_targets(low, plane, write.runs))
            else:
                key = (low, low + length(write.runs))
                columns.setdefault(key, {})[plane.spec.column] = tuple(_targets(0, plane, write.runs))
        self.column_writes.extend(ColumnWrite(low, high, targets) for (low, high), targets in columns.items())


def write_columns(context: StepContext, layer: int, hidden: torch.Tensor) -> None:
    """Deposit X @ [A | A | …] of a layer's v_proj input `hidden` [rows, d_in]: one product per group of rows."""
    adapters = context.adapters
    for write in context.column_writes:
        rows = hidden if write.end - write.start == len(hidden) else hidden[write.start : write.end]
        names = adapters.value_names
        if len(write.targets) == 1:
            names = tuple(write.targets)
            down = adapters.value_down(names[0], layer)
        else:
            down = adapters.value_downs(layer)
        columns = torch.split(rows.to(down.dtype) @ down, [adapters.ranks[name] for name in names], 1)
        for name, column in zip(names, columns, strict=True):
            targets = write.targets.get(name, ())
            for start, end, stretch in targets:
                stretch.read("lr", layer).copy_(column if len(targets) == 1 else column[start:end])


def _targets(row: int, plane: Plane, runs: Runs) -> list[Target]:
    targets = []
    for run in runs:
        targets.append(Target(row, row + run.size, plane.locate(run)))
        row += run.size
    return targets


def _pieces(view: View, planes: Mapping[str, Plane], first: int) -> list[Piece]:
    """Cut the view where its K/V runs or its column's runs end, so that each piece is a slice everywhere.

    Also at the pass's `first` position: what lies before is visible to all its rows and needs no mask.
    """
    keys = _placed(0, view.runs)
    column = _column(view.column)
    edges = sorted({first, *(edge for start, end, _ in (*keys, *column) for edge in (start, end))})
    pieces = []
    for low, high in itertools.pairwise(edges):
        stretches = []
        for plane, placed in ((view.plane, keys), (view.column.plane if view.column else "", column)):
            hit = next(((start, slot) for start, end, slot in placed if start <= low < end), None)
            run = None if hit is None else Run(hit[1] + low - hit[0], high - low)
            stretches.append(None if run is None else planes[plane].locate(run))
        assert stretches[0] is not None
        pieces.append(Piece(low, stretches[0], stretches[1]))
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
