"""The rows of a step whose passes have plans, layer by layer: as they enter, are stored, thinned and leave."""

from collections.abc import Callable, Mapping

import torch

from agentrt.cache.plane import Plane
from agentrt.step import Pass, RowPlan, States, Step
from agentrt_kernels.tables import send

PLAIN = RowPlan()
"""In at the embeddings, out at the end."""

Project = Callable[[Pass, int, torch.Tensor], None]
"""project(pass, layer, rows [n, D]): write K and V of its rows; if its selection is due, let it choose among them."""


class PackedRows:
    """`passes`: those whose rows run now, by their place in the step. `hidden` [rows, D] belongs to them in order."""

    def __init__(
        self, step: Step, planes: Mapping[str, Plane], embed: Callable[[Pass], torch.Tensor], project: Project
    ) -> None:
        self._step = step
        self._planes = planes
        self._embed = embed
        self._project = project
        self.passes: dict[int, Pass] = {}
        self.hidden: torch.Tensor

    def edges(self, num_layers: int) -> list[int]:
        """Layers before which something may change, 0 and the end included."""
        found = {0, num_layers}
        for plan in (each.plan for each in self._step.passes if each.plan is not None):
            found |= {plan.first, num_layers if plan.stop is None else plan.stop}
            found |= {plan.last} if plan.last is not None else set()
            found |= {self._layer(plan.store)} if plan.store is not None else set()
            found |= {plan.select.layer} if plan.select is not None else set()
        return sorted(found)

    def turn_over(self, layer: int) -> None:
        """What happens before `layer`.

        In the order of the passes, so that one may enter from what another has just stored.
        """
        before = self.passes
        sizes = [len(each) for each in before.values()]
        rows = dict(zip(before, torch.split(self.hidden, sizes), strict=True)) if before else {}
        self.passes = {}
        for index, each in enumerate(self._step.passes):
            plan = each.plan or PLAIN
            if plan.first == layer and index not in before:
                rows[index] = self._embed(each) if plan.source is None else self._read(plan.source)
            if index in rows:
                now, rows[index] = self._pass_by(layer, before.get(index, each), plan, rows[index])
                if len(now) and layer not in (plan.last, plan.stop):
                    self.passes[index] = now
                elif len(now) and layer == plan.last:
                    self._project(now, layer, rows[index])
        if self.passes and self.passes != before:
            self.hidden = torch.cat([rows[index] for index in self.passes])

    def _pass_by(self, layer: int, each: Pass, plan: RowPlan, rows: torch.Tensor) -> tuple[Pass, torch.Tensor]:
        """Store and thin the rows of one pass where its plan says so."""
        if plan.store is not None and self._layer(plan.store) == layer:
            self._write(plan.store, rows)
        if plan.select is None or plan.select.layer != layer:
            return each, rows
        self._project(each, layer, rows)
        return each.thinned(), rows[send(plan.select.kept.positions, rows.device) - each.start]

    def _layer(self, states: States) -> int:
        return self._planes[states.plane].spec.layers[0]

    def _read(self, states: States) -> torch.Tensor:
        layer, plane = self._layer(states), self._planes[states.plane]
        return torch.cat([plane.locate(run).read("x", layer) for run in states.runs])

    def _write(self, states: States, rows: torch.Tensor) -> None:
        layer, plane = self._layer(states), self._planes[states.plane]
        for run, part in zip(states.runs, torch.split(rows, [run.size for run in states.runs]), strict=True):
            plane.locate(run).read("x", layer).copy_(part)
