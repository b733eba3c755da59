"""A step through the Triton kernels: tables made once a step, addresses once per set of planes, no host wait between.

The other way to run a step is plain torch: `attention.py` and `projections.py` themselves.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import torch

from agentrt.cache.plane import Plane
from agentrt.model.adapters import AdapterSet
from agentrt.model.addresses import Known, look_at, terms_in
from agentrt.model.lowrank import Site
from agentrt.model.step_tables import StepTables, Tables
from agentrt_kernels.kv_append import triton as kv_append
from agentrt_kernels.lora_attention.launch import Workspace, attend_planned
from agentrt_kernels.lora_shrink_expand import triton as lora_shrink_expand
from agentrt_kernels.lora_shrink_expand.reference import Weights
from agentrt_kernels.lora_shrink_expand.triton import Terms
from agentrt_kernels.lr_project import triton as lr_project
from agentrt_kernels.tables import upload

if TYPE_CHECKING:
    from agentrt.model.context import StepContext


class StepKernels:
    """Owned by a backbone's StepContext. `begin` announces a step; its tables are made when a layer first asks.

    All that a launch depends on is in `step`, in scratch that only grows, and in weights.
    """

    step: Tables

    def __init__(self, device: torch.device, heads: int) -> None:
        self.device = device
        self.windows: dict[int, int | None] = {}
        """By layer that has attended, its sliding window. Only the model's modules know them."""
        self._heads = heads
        self._attention_scratch = Workspace(device)
        self._low_scratch = Workspace(device)
        self._known: WeakKeyDictionary[Plane, Known] = WeakKeyDictionary()
        self._terms: WeakKeyDictionary[AdapterSet, dict[Site, Terms | None]] = WeakKeyDictionary()
        self._columns: WeakKeyDictionary[AdapterSet, dict[str, torch.Tensor]] = WeakKeyDictionary()

    def begin(self, context: "StepContext", planes: Mapping[str, Plane], positions: Sequence[int]) -> None:
        self.step = StepTables(context, planes, positions, heads=self._heads, device=self.device, look_up=self._look_up)

    @property
    def scratch(self) -> tuple[torch.Tensor, ...]:
        """What launches write between them. Later steps may use larger tensors."""
        return self._attention_scratch.whole, self._low_scratch.whole

    def write(self, layer: int, key: torch.Tensor, value: torch.Tensor) -> None:
        """Write the rows of keys and values, [rows, kv_heads, d]; the last dimension contiguous."""
        rows, known = self.step.rows, self.step.known
        tables = [rows.append]
        if layer in rows.layer_append:
            tables.append(rows.further[rows.layer_append[layer]])
        for table in tables:
            if len(table):
                kv_append.append(key, value, table, known.writes[layer], known.addresses.caches[layer].k[0])

    def write_base_keys(self, layer: int, rows: torch.Tensor) -> None:
        """Keep the base product of k_proj, [rows, kv_heads * head_dim], where the step's rows have slots for it."""
        known = self.step.known
        into = known.addresses.caches[layer].k[0]
        keys = rows.view(len(rows), *into.shape[1:])
        kv_append.append(keys, keys, self.step.rows.append, known.base_writes[layer], into)

    def attend(self, layer: int, query: torch.Tensor, scale: float, window: int | None) -> torch.Tensor:
        """Let every pass read; query [rows, heads, d], the last dimension contiguous, as in what is returned."""
        self.windows[layer] = window
        plan = self.step.plan(layer, window)
        return attend_planned(query, plan, self.step.known.addresses, layer, self._attention_scratch, scale=scale)

    def deposit(self, layer: int, hidden: torch.Tensor) -> None:
        """Write the low-rank activations of v_proj and k_proj, whose input is `hidden` [rows, d_in]."""
        adapters, rows = self.step.adapters, self.step.rows
        made = self._columns.setdefault(adapters, {})
        for kind, pieces in rows.deposits.items():
            if len(pieces):
                names, ranks, downs = terms_in(kind, adapters)
                if kind not in made:
                    (made[kind],) = upload([lr_project.column_table([ranks[name] for name in names])], self.device)
                into = self.step.known.columns[kind]
                where = into.where[layer]
                lr_project.project(hidden, downs(layer), pieces, made[kind], where, into.dtype, few_rows=rows.few)

    def add_terms(self, site: Site, x: torch.Tensor, out: torch.Tensor) -> None:
        """Add to `out` [rows, d_out] the low-rank term of each row's own path; x [rows, d_in]."""
        terms = self._terms_of(site)
        rows = self.step.rows
        pieces = rows.value_rows if site.projection == "v_proj" else rows.all_rows
        if terms is not None and len(pieces):
            (scratch,) = self._low_scratch.take(terms.scratch_size(len(x)))
            lora_shrink_expand.shrink_expand(x, out, pieces, terms, scratch, few_rows=rows.few)

    def _look_up(self, planes: Mapping[str, Plane], adapters: AdapterSet) -> Known:
        """Addresses of the planes, made again when one has grown or other adapters read them."""
        owner = next(iter(planes.values()))
        known = self._known.get(owner)
        if known is None or not known.holds(planes, adapters):
            known = self._known[owner] = look_at(planes, adapters)
        return known

    def _terms_of(self, site: Site) -> Terms | None:
        adapters = self.step.adapters
        known = self._terms.setdefault(adapters, {})
        if site not in known:
            weights = [adapters.weights[name].get(site) for name in adapters.names]
            pairs = [None if each is None else Weights(each.down, each.up) for each in weights]
            known[site] = Terms.of(pairs, self.device) if any(pairs) else None
        return known[site]
