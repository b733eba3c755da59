"""What the projections and the attention of one step need to know; filled once per step, read in every layer."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch

from agentrt.cache.plane import Plane
from agentrt.cache.slots import Run, Runs, length
from agentrt.cache.view import Column
from agentrt.model.adapters import AdapterSet
from agentrt.step import Pass, Step


class Rows(NamedTuple):
    """Rows `[start, end)` of the packed step, all of one path."""

    start: int
    end: int
    path: str


class KvWrite(NamedTuple):
    plane: Plane
    start: int
    end: int
    runs: Runs


class ColumnWrite(NamedTuple):
    """Rows that deposit low-rank activations of `adapters`, each into its own plane."""

    start: int
    end: int
    adapters: tuple[str, ...]
    targets: tuple[tuple[Plane, Runs], ...]


class Placed(NamedTuple):
    """Runs of one plane with the position of each run's first token."""

    plane: Plane
    runs: tuple[tuple[int, Run], ...]


class Reader(NamedTuple):
    """One pass as attention sees it."""

    start: int
    end: int
    position: int
    path: str
    keys: Placed
    column: Placed | None


class StepContext:
    """Owned by a backbone and handed to its projections at construction; `fill` prepares it for one step."""

    adapters: AdapterSet
    all_rows: list[Rows]
    value_rows: list[Rows]
    kv_writes: list[KvWrite]
    column_writes: list[ColumnWrite]
    readers: list[Reader]

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
            column = each.view.column
            self.readers.append(
                Reader(
                    start,
                    end,
                    each.start,
                    each.path,
                    _place(planes[each.view.plane], 0, each.view.runs),
                    None if column is None else _place_column(planes, column),
                )
            )
            start = end

    def rows_of(self, projection: str) -> Sequence[Rows]:
        """Rows whose path's low-rank term the projection adds."""
        return self.value_rows if projection == "v_proj" else self.all_rows

    def _add_writes(self, each: Pass, start: int, planes: Mapping[str, Plane]) -> None:
        columns: dict[tuple[int, int], list[tuple[str, Plane, Runs]]] = {}
        for write in each.writes:
            plane = planes[write.plane]
            low = start + write.first_row
            high = low + length(write.runs)
            if plane.spec.column is None:
                self.kv_writes.append(KvWrite(plane, low, high, write.runs))
            else:
                columns.setdefault((low, high), []).append((plane.spec.column, plane, write.runs))
        for (low, high), targets in columns.items():
            names = tuple(name for name, _, _ in targets)
            self.column_writes.append(ColumnWrite(low, high, names, tuple((p, runs) for _, p, runs in targets)))


def _place(plane: Plane, position: int, runs: Runs) -> Placed:
    placed = []
    for run in runs:
        placed.append((position, run))
        position += run.size
    return Placed(plane, tuple(placed))


def _place_column(planes: Mapping[str, Plane], column: Column) -> Placed | None:
    return _place(planes[column.plane], column.start, column.runs) if column.runs else None


def write_columns(context: StepContext, layer: int, hidden: torch.Tensor) -> None:
    """Deposit X @ [A | A | …] of a layer's v_proj input `hidden` [rows, d_in]: one product per group of rows."""
    for write in context.column_writes:
        product = hidden[write.start : write.end] @ context.adapters.value_down(write.adapters, layer)
        offset = 0
        for adapter, (plane, runs) in zip(write.adapters, write.targets, strict=True):
            rank = context.adapters.ranks[adapter]
            plane.write("lr", layer, runs, product[:, offset : offset + rank])
            offset += rank
