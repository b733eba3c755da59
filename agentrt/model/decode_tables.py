"""The tables of a decode step as a recorded step needs them: padded, so that many steps have one shape."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch

from agentrt.model.adapters import AdapterSet
from agentrt.model.addresses import Known
from agentrt.model.kernels import StepKernels
from agentrt.model.step_tables import Rows, StepTables
from agentrt.step import Pass
from agentrt_kernels.lora_attention.plan import HostPlan, Plan
from agentrt_kernels.tables import Table


class Fixed(NamedTuple):
    """What the kernels ask of a recorded step: tables whose numbers change, and nothing else does."""

    adapters: AdapterSet
    known: Known
    rows: Rows[torch.Tensor]
    plans: Mapping[int | None, Plan]

    def plan(self, layer: int, window: int | None) -> Plan:
        """The same for all layers that have the window."""
        del layer
        return self.plans[window]


class DecodeTables(NamedTuple):
    """A step of one row a pass. Steps of equal `shape` launch the same kernels with the same arguments."""

    adapters: AdapterSet
    known: Known
    inputs: tuple[Table, Table, Table]
    """Token ids, positions, and the rows whose logits are wanted."""
    rows: Rows[Table]
    plans: Mapping[int | None, HostPlan]
    wanted: Sequence[bool]
    """By pass, whether its logits are."""

    @property
    def tables(self) -> list[Table]:
        return [*self.inputs, *self.rows.tables(), *(table for plan in self.plans.values() for table in plan.tables)]

    @property
    def shape(self) -> tuple[object, ...]:
        lengths = tuple(len(table.rows) for table in self.tables)
        plans = tuple((plan.blocks, plan.num_parts, plan.adapted) for plan in self.plans.values())
        return (lengths, self.rows.few, plans)

    def on(self, tensors: Sequence[torch.Tensor]) -> tuple[Sequence[torch.Tensor], Fixed]:
        """Its inputs, and the rest, on a device; `tensors` in the order of `tables`."""
        left = iter(tensors)

        def take(tables: Sequence[Table]) -> list[torch.Tensor]:
            return [next(left) for _ in tables]

        inputs = take(self.inputs)
        rows = self.rows.on(take(self.rows.tables()))
        plans = {window: plan.on(take(plan.tables)) for window, plan in self.plans.items()}
        return inputs, Fixed(self.adapters, self.known, rows, plans)


def describe(passes: Sequence[Pass], kernels: StepKernels) -> DecodeTables:
    """The step that `kernels` were told of, of these passes; every layer must have attended once."""
    step = kernels.step
    assert isinstance(step, StepTables)
    wanted = [each.logits != "none" for each in passes]
    ids = [each.token_ids[0] for each in passes]
    at = [row for row, each in enumerate(wanted) if each]
    positions, *others = (Table([(number,) for number in each], 1).padded() for each in (step.positions, ids, at))
    least = len(positions.rows)
    rows = step.host_rows()
    rows = rows.on([table.padded(least) for table in rows.tables()])
    layers = {window: layer for layer, window in kernels.windows.items()}
    plans = {window: step.host_plan(layer, window).padded() for window, layer in layers.items()}
    return DecodeTables(step.adapters, step.known, (others[0], positions, others[1]), rows, plans, wanted)
