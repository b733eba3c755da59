"""A step through the Triton kernels: tables made once a step, addresses once per set of planes, no host wait between.

The other way to run a step is plain torch: `attention.py` and `projections.py` themselves.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple
from weakref import ReferenceType, WeakKeyDictionary, ref

import torch

from agentrt.cache.plane import Plane
from agentrt.model.adapters import AdapterSet
from agentrt.model.lowrank import Site
from agentrt.model.pieces import Piece
from agentrt_kernels.kv_append import triton as kv_append
from agentrt_kernels.kv_append.reference import Target, check_targets
from agentrt_kernels.lora_attention.addresses import Addresses
from agentrt_kernels.lora_attention.launch import Workspace, attend_planned
from agentrt_kernels.lora_attention.packed import Cache, Pass, Place, Run, check_tables
from agentrt_kernels.lora_attention.plan import Plan, choose_blocks, make_plan
from agentrt_kernels.lora_shrink_expand import triton as lora_shrink_expand
from agentrt_kernels.lora_shrink_expand.reference import Span, Weights
from agentrt_kernels.lr_project import triton as lr_project
from agentrt_kernels.lr_project.reference import Deposit
from agentrt_kernels.tables import Table, addresses, upload

if TYPE_CHECKING:
    from agentrt.model.context import Reader, StepContext
    from agentrt.model.context import Target as Write

FEW_ROWS = 16
COLUMNS = ("lr", "lrk")
"""Kinds of low-rank rows: of values, and of keys."""


class _Tables(NamedTuple):
    """A step's rows on the device."""

    append: torch.Tensor
    layer_append: Mapping[int, torch.Tensor]
    """Further rows of the layers that planes of some layers cover."""
    deposits: Mapping[str, torch.Tensor]
    """By kind of column."""
    all_rows: torch.Tensor
    value_rows: torch.Tensor
    few: bool
    """No piece of rows is longer than FEW_ROWS."""


class _Columns(NamedTuple):
    """Low-rank rows of one kind."""

    where: torch.Tensor
    """[layers, n, 2]: address, and row stride in elements."""
    dtype: torch.dtype
    places: Mapping[int, int]
    """Segment (by id) to its index among these."""


class _Known(NamedTuple):
    """What stays as it is while neither planes nor adapters change. Holds tensors, but no plane."""

    num_segments: int
    adapters: ReferenceType[AdapterSet]
    addresses: Addresses
    writes: torch.Tensor
    """[layers, n, 2]: where keys and values of the segments are written, 0 where a segment has none."""
    base_writes: torch.Tensor
    """Likewise base keys, and 0."""
    places: Mapping[int, int]
    """Segment (by id) to its index among these."""
    columns: Mapping[str, _Columns]


class _Terms(NamedTuple):
    """One projection's terms of all adapters."""

    where: torch.Tensor
    max_rank: int
    dtype: torch.dtype


class StepKernels:
    """Owned by a backbone's StepContext. `begin` announces a step; tables are made when a layer first asks.

    Where planes are poisoned, as in tests, tables are checked against the tensors before a kernel reads them.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._attention_scratch = Workspace(device)
        self._low_scratch = Workspace(device)
        self._known: WeakKeyDictionary[Plane, _Known] = WeakKeyDictionary()
        self._terms: WeakKeyDictionary[AdapterSet, dict[Site, _Terms | None]] = WeakKeyDictionary()
        self._columns: WeakKeyDictionary[AdapterSet, dict[str, torch.Tensor]] = WeakKeyDictionary()

    def begin(self, context: "StepContext", planes: Mapping[str, Plane], positions: Sequence[int]) -> None:
        self._context, self._planes, self._positions = context, planes, positions
        self._plans: dict[tuple[int | None, ...], Plan] = {}
        self._tables: _Tables | None = None
        self._cache: _Known | None = None

    def write(self, layer: int, key: torch.Tensor, value: torch.Tensor) -> None:
        """Write the rows of keys and values, [rows, kv_heads, d]; the last dimension contiguous."""
        tables = self._rows()
        for table in (tables.append, tables.layer_append.get(layer)):
            if table is not None and len(table):
                kv_append.append(key, value, table, self._look_up().writes[layer], key.shape[1])

    def write_base_keys(self, layer: int, rows: torch.Tensor) -> None:
        """Keep the base product of k_proj, [rows, kv_heads * head_dim], where the step's rows have slots for it."""
        known = self._look_up()
        kv_heads, head_dim = known.addresses.caches[layer].k[0].shape[1:]
        keys = rows.view(len(rows), kv_heads, head_dim)
        kv_append.append(keys, keys, self._rows().append, known.base_writes[layer], kv_heads)

    def attend(self, layer: int, query: torch.Tensor, scale: float, window: int | None) -> torch.Tensor:
        """Let every pass read; query [rows, heads, d], the last dimension contiguous, as in what is returned."""
        known = self._look_up()
        pieces = [each.overlaid.get(layer, each.pieces) for each in self._context.readers]
        key = (window, *map(id, pieces))
        plan = self._plans.get(key)
        if plan is None:
            plan = self._plans[key] = self._plan(known, query, window, pieces)
        return attend_planned(query, plan, known.addresses, layer, self._attention_scratch, scale=scale)

    def deposit(self, layer: int, hidden: torch.Tensor) -> None:
        """Write the low-rank activations of v_proj and k_proj, whose input is `hidden` [rows, d_in]."""
        adapters, tables = self._context.adapters, self._rows()
        made = self._columns.setdefault(adapters, {})
        for kind, pieces in tables.deposits.items():
            if len(pieces):
                if kind not in made:
                    names, ranks, _ = _terms_in(kind, adapters)
                    (made[kind],) = upload([lr_project.column_table([ranks[name] for name in names])], self._device)
                downs = _terms_in(kind, adapters)[2](layer)
                into = self._look_up().columns[kind]
                where = into.where[layer]
                lr_project.project(hidden, downs, pieces, made[kind], where, into.dtype, few_rows=tables.few)

    def add_terms(self, site: Site, x: torch.Tensor, out: torch.Tensor) -> None:
        """Add to `out` [rows, d_out] the low-rank term of each row's own path; x [rows, d_in]."""
        terms = self._terms_of(site)
        tables = self._rows()
        pieces = tables.value_rows if site.projection == "v_proj" else tables.all_rows
        if terms is not None and len(pieces):
            (scratch,) = self._low_scratch.take(lora_shrink_expand.scratch_size(x.shape[0], x.shape[1], terms.max_rank))
            lora_shrink_expand.shrink_expand(x, out, pieces, *terms, scratch, few_rows=tables.few)

    def _rows(self) -> _Tables:
        if self._tables is None:
            context = self._context
            index = {name: number for number, name in enumerate(context.adapters.names)}
            spans = [
                [Span(start, end, index[path]) for start, end, path in rows]
                for rows in (context.all_rows, context.value_rows)
            ]
            known = self._look_up() if self._planes else None
            places, columns = ({}, {}) if known is None else (known.places, known.columns)
            everywhere = _targets(context.kv_writes, places)
            targets = {layer: _targets(writes, places) for layer, writes in context.layer_writes.items()}
            if self._checks:
                sizes = [len(k) for k in self._look_up().addresses.caches[0].k]
                for each in (everywhere, *targets.values()):
                    check_targets(each, len(self._positions), sizes)
            further = list(set(targets.values()))  # layers of one plane share a table
            deposits = {kind: self._deposits(kind, each.places) for kind, each in columns.items()}
            longest = max((rows.end - rows.start for rows in context.all_rows), default=0)
            longest = max([longest, *(each.end - each.start for kind in deposits.values() for each in kind)])
            tables: list[Table] = [
                kv_append.table(everywhere),
                *map(lora_shrink_expand.table, spans),
                *map(kv_append.table, further),
                *(lr_project.table(each, len(_terms_in(kind, context.adapters)[0])) for kind, each in deposits.items()),
            ]
            append, all_rows, value_rows, *rest = upload(tables, self._device)
            by_layer = {layer: rest[further.index(targets[layer])] for layer in targets}
            low = dict(zip(deposits, rest[len(further) :], strict=True))
            self._tables = _Tables(append, by_layer, low, all_rows, value_rows, longest <= FEW_ROWS)
        return self._tables

    @property
    def _checks(self) -> bool:
        return any(plane.poisons for plane in self._planes.values())

    def _deposits(self, kind: str, places: Mapping[int, int]) -> list[Deposit]:
        names = _terms_in(kind, self._context.adapters)[0]
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

    def _plan(self, known: _Known, query: torch.Tensor, window: int | None, pieces: Sequence[Sequence[Piece]]) -> Plan:
        readers = self._context.readers
        passes = [self._pass(reader, each, known) for reader, each in zip(readers, pieces, strict=True)]
        cache = known.addresses.caches[0]
        if self._checks:
            check_tables(self._positions, passes, cache)
        kv_heads = cache.k[0].shape[1]
        group = query.shape[1] // kv_heads
        tallest = max(each.end - each.start for each in passes) * group
        blocks = choose_blocks(tallest, group, query.shape[2], query.dtype)
        return make_plan(
            self._positions, passes, blocks, group=group, kv_heads=kv_heads, window=window, device=self._device
        )

    def _pass(self, reader: "Reader", pieces: Sequence[Piece], known: _Known) -> Pass:
        runs = []
        for position, rows, column, _ in pieces:
            kv = Place(known.places[id(rows.segment)], rows.start)
            lr = None if column is None else Place(known.columns["lr"].places[id(column.segment)], column.start)
            own = rows.holding("k")
            keys = None if own is rows else Place(known.places[id(own.segment)], own.start)
            runs.append(Run(position, rows.end - rows.start, kv, lr, keys=keys))
        adapter = self._context.adapters.value_names.index(reader.path) if reader.factored else None
        return Pass(reader.start, reader.end, tuple(runs), adapter)

    def _look_up(self) -> _Known:
        """Addresses of the step's planes, made again when a plane has grown or other adapters read them."""
        if self._cache is None:
            adapters, planes = self._context.adapters, self._planes
            owner = next(iter(planes.values()))
            known = self._known.get(owner)
            count = sum(len(plane.segments) for plane in planes.values())
            if known is None or known.num_segments != count or known.adapters() is not adapters:
                known = self._known[owner] = _describe(planes, adapters, count)
            self._cache = known
        return self._cache

    def _terms_of(self, site: Site) -> _Terms | None:
        adapters = self._context.adapters
        known = self._terms.setdefault(adapters, {})
        if site not in known:
            weights = [adapters.weights[name].get(site) for name in adapters.names]
            present = [each for each in weights if each is not None]
            known[site] = None
            if present:
                pairs = [None if each is None else Weights(each.down, each.up) for each in weights]
                where = lora_shrink_expand.addresses(pairs, self._device)
                known[site] = _Terms(where, max(each.rank for each in present), present[0].down.dtype)
        return known[site]


def _targets(writes: "Sequence[Write]", places: Mapping[int, int]) -> tuple[Target, ...]:
    return tuple(Target(start, end, places[id(stretch.segment)], stretch.start) for start, end, stretch in writes)


def _terms_in(
    kind: str, adapters: AdapterSet
) -> tuple[tuple[str, ...], Mapping[str, int], Callable[[int], torch.Tensor]]:
    """Whose terms have columns of this kind, their ranks, and [A | A | ...] of a layer."""
    if kind == "lr":
        return adapters.value_names, adapters.ranks, adapters.value_downs
    return adapters.key_names, adapters.key_ranks, adapters.key_downs


def _layer_of(plane: Plane, segment: Mapping[str, torch.Tensor], part: str, layer: int) -> torch.Tensor:
    """Of a layer that the plane does not cover: another layer's rows, so that layers are alike. No table names them."""
    layers = plane.spec.layers
    return segment[part][layers.index(layer) if layer in layers else 0]


def _describe(planes: Mapping[str, Plane], adapters: AdapterSet, count: int) -> _Known:
    device = next(iter(planes.values())).device
    layers = range(next(plane.spec.num_layers for plane in planes.values() if plane.spec.only is None))
    rows = [(p, segment) for p in planes.values() if p.spec.has("k") or p.spec.has("v") for segment in p.segments]
    columns = {}
    for kind in COLUMNS:
        low = [segment for plane in planes.values() if plane.spec.has(kind) for segment in plane.segments]
        if low:
            pairs = [[(s[kind][layer].data_ptr(), s[kind].stride(1)) for s in low] for layer in layers]
            columns[kind] = _Columns(addresses(pairs, device), low[0][kind].dtype, _numbers(low))

    def part_of(layer: int, part: str, instead: str) -> list[torch.Tensor]:
        """Of a segment without the part another of its tensors stands in: no table names it."""
        return [_layer_of(plane, each, part if part in each else instead, layer) for plane, each in rows]

    def written(part: str, layer: int) -> list[int]:
        return [_layer_of(plane, each, part, layer).data_ptr() if part in each else 0 for plane, each in rows]

    keys = [part_of(layer, "k", "v") for layer in layers]
    kv_heads = keys[0][0].shape[1]
    valued = [segment["lr"] for plane in planes.values() if plane.spec.has("lr") for segment in plane.segments]
    caches = [
        Cache(
            keys[layer],
            part_of(layer, "v", "k"),
            [segment[layer] for segment in valued],
            [adapters.value_up(name, layer, kv_heads) for name in adapters.value_names] if valued else [],
        )
        for layer in layers
    ]
    return _Known(
        count,
        ref(adapters),
        Addresses.of(caches),
        addresses([list(zip(written("k", layer), written("v", layer), strict=True)) for layer in layers], device),
        addresses([[(base, 0) for base in written("k0", layer)] for layer in layers], device),
        _numbers([segment for _, segment in rows]),
        columns,
    )


def _numbers(segments: Sequence[Mapping[str, torch.Tensor]]) -> dict[int, int]:
    return {id(segment): index for index, segment in enumerate(segments)}
