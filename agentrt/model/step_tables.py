"""The integer tables of one step for the Triton kernels: its rows, and for each kind of layer who reads which keys.

They are lists of integers at first. A step sends them to the device when a layer first asks; a recorded step has
tables that stay, and their numbers are replaced.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar

import torch

from agentrt.cache.plane import Plane
from agentrt.model.adapters import AdapterSet
from agentrt.model.addresses import Known, Places, terms_in
from agentrt.model.pieces import Piece
from agentrt_kernels.kv_append import triton as kv_append
from agentrt_kernels.kv_append.reference import Target, check_targets
from agentrt_kernels.lora_attention.packed import Pass, Place, Run, check_tables
from agentrt_kernels.lora_attention.plan import HostPlan, Plan, choose_blocks, make_plan
from agentrt_kernels.lora_shrink_expand import triton as lora_shrink_expand
from agentrt_kernels.lora_shrink_expand.reference import Span, check_spans
from agentrt_kernels.lr_project import triton as lr_project
from agentrt_kernels.lr_project.reference import Deposit, check_deposits
from agentrt_kernels.tables import Table, upload

if TYPE_CHECKING:
    from agentrt.model.context import Reader, StepContext
    from agentrt.model.targets import Target as Write

FEW_ROWS = 16

T = TypeVar("T")
U = TypeVar("U")


class Rows(NamedTuple, Generic[T]):
    """What happens to a step's rows: tables on the host (T is Table) or on the device (a tensor)."""

    append: T
    all_rows: T
    value_rows: T
    deposits: Mapping[str, T]
    """By kind of column."""
    further: tuple[T, ...]
    """Further rows for planes of some layers; those of one plane share a table."""
    layer_append: Mapping[int, int]
    """Of a layer that has such rows: which of `further`."""
    few: bool
    """No piece of rows is longer than FEW_ROWS."""

    def tables(self) -> list[T]:
        return [self.append, self.all_rows, self.value_rows, *self.deposits.values(), *self.further]

    def on(self, tables: Sequence[U]) -> "Rows[U]":
        """The same with these in place of its own, in the order of `tables`."""
        append, all_rows, value_rows, *rest = tables
        deposits = dict(zip(self.deposits, rest, strict=False))
        further = tuple(rest[len(deposits) :])
        return Rows(append, all_rows, value_rows, deposits, further, self.layer_append, self.few)


class Tables(Protocol):
    """What the kernels ask of a step."""

    @property
    def adapters(self) -> AdapterSet: ...

    @property
    def known(self) -> Known: ...

    @property
    def rows(self) -> Rows[torch.Tensor]: ...

    def plan(self, layer: int, window: int | None) -> Plan: ...


class StepTables:
    """Those of the step that `context` was filled for; `positions` of all its rows.

    Where planes are poisoned, as in tests, tables are checked against the tensors before a kernel reads them.
    """

    def __init__(
        self,
        context: "StepContext",
        planes: Mapping[str, Plane],
        positions: Sequence[int],
        *,
        heads: int,
        device: torch.device,
        look_up: Callable[[Mapping[str, Plane], AdapterSet], Known],
    ) -> None:
        self.adapters = context.adapters
        self.positions = positions
        self._context, self._planes = context, planes
        self._heads, self._device, self._look_up = heads, device, look_up
        self._plans: dict[tuple[int | None, ...], Plan] = {}

    @cached_property
    def known(self) -> Known:
        return self._look_up(self._planes, self.adapters)

    @cached_property
    def rows(self) -> Rows[torch.Tensor]:
        host = self.host_rows()
        return host.on(upload(host.tables(), self._device))

    def plan(self, layer: int, window: int | None) -> Plan:
        pieces = self._pieces(layer)
        key = (window, *map(id, pieces))
        if key not in self._plans:
            self._plans[key] = self.host_plan(layer, window).upload(self._device)
        return self._plans[key]

    def host_rows(self) -> Rows[Table]:
        context, adapters = self._context, self.adapters
        index = {name: number for number, name in enumerate(adapters.names)}
        all_rows, value_rows = (
            [Span(start, end, index[path]) for start, end, path in rows]
            for rows in (context.all_rows, context.value_rows)
        )
        known = self.known if self._planes else None
        places, columns = ({}, {}) if known is None else (known.places, known.columns)
        everywhere = _targets(context.kv_writes, places)
        targets = {layer: _targets(writes, places) for layer, writes in context.layer_writes.items()}
        further = list(dict.fromkeys(targets.values()))
        deposits = {kind: self._deposits(kind, each.places) for kind, each in columns.items()}
        if self._checks:
            num_rows = len(self.positions)
            sizes = [len(k) for k in self.known.addresses.caches[0].k]
            for each in (everywhere, *further):
                check_targets(each, num_rows, sizes)
            for spans in (all_rows, value_rows):
                check_spans(spans, num_rows, len(adapters.names))
            for kind, made in deposits.items():
                names, ranks, _ = terms_in(kind, adapters)
                check_deposits(made, num_rows, [ranks[name] for name in names], columns[kind].shapes)
        longest = max((rows.end - rows.start for rows in context.all_rows), default=0)
        longest = max([longest, *(each.end - each.start for made in deposits.values() for each in made)])
        return Rows(
            kv_append.table(everywhere),
            lora_shrink_expand.table(all_rows),
            lora_shrink_expand.table(value_rows),
            {kind: lr_project.table(made, len(terms_in(kind, adapters)[0])) for kind, made in deposits.items()},
            tuple(map(kv_append.table, further)),
            {layer: further.index(each) for layer, each in targets.items()},
            longest <= FEW_ROWS,
        )

    def host_plan(self, layer: int, window: int | None) -> HostPlan:
        readers = self._context.readers
        passes = [self._pass(reader, each) for reader, each in zip(readers, self._pieces(layer), strict=True)]
        cache = self.known.addresses.caches[0]
        if self._checks:
            check_tables(self.positions, passes, cache)
        _, kv_heads, head_dim = cache.k[0].shape
        group = self._heads // kv_heads
        tallest = max(each.end - each.start for each in passes) * group
        blocks = choose_blocks(tallest, group, head_dim, cache.k[0].dtype)
        return make_plan(self.positions, passes, blocks, group=group, kv_heads=kv_heads, window=window)

    @property
    def _checks(self) -> bool:
        return any(plane.poisons for plane in self._planes.values())

    def _pieces(self, layer: int) -> list[tuple[Piece, ...]]:
        return [each.overlaid.get(layer, each.pieces) for each in self._context.readers]

    def _deposits(self, kind: str, places: Places) -> list[Deposit]:
        names = terms_in(kind, self.adapters)[0]
        deposits = []
        for write in self._context.column_writes:
            targets = {
                names.index(name): [
                    Target(write.start + low, write.start + high, places[id(stretch.segment)], stretch.start)
                    for low, high, stretch in each
                ]
                for name, each in write.targets.items()
                if name in names
            }
            if targets:
                deposits.append(Deposit(write.start, write.end, targets))
        return deposits

    def _pass(self, reader: "Reader", pieces: Sequence[Piece]) -> Pass:
        known = self.known
        runs = []
        for position, rows, column, _ in pieces:
            kv = Place(known.places[id(rows.segment)], rows.start)
            lr = None if column is None else Place(known.columns["lr"].places[id(column.segment)], column.start)
            own = rows.holding("k")
            keys = None if own is rows else Place(known.places[id(own.segment)], own.start)
            runs.append(Run(position, rows.end - rows.start, kv, lr, keys=keys))
        adapter = self.adapters.value_names.index(reader.path) if reader.factored else None
        return Pass(reader.start, reader.end, tuple(runs), adapter)


def _targets(writes: "Iterable[Write]", places: Places) -> tuple[Target, ...]:
    return tuple(Target(start, end, places[id(stretch.segment)], stretch.start) for start, end, stretch in writes)
