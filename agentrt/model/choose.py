"""Which rows of a pass go on: the selection of its plan, by one layer's q, k, v and what they would replace."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch

from agentrt.cache.plane import Plane
from agentrt.cache.slots import Run
from agentrt.cache.view import View
from agentrt.step import Pass, Reused
from agentrt_kernels.tables import send


class Chooser(NamedTuple):
    """For a pass before a layer: settles its selection, if it has one there that has not chosen."""

    run: Pass
    planes: Mapping[str, Plane]

    def choose(
        self,
        queries: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        layer: int,
        scale: float,
        window: int | None,
    ) -> None:
        """Score rows by queries [n, H, d], keys and values [n, Hkv, d], and settle the best, of equals the first."""
        select = None if self.run.plan is None else self.run.plan.select
        if select is None or self.run.kept is not None:
            return
        assert layer == select.layer
        held_keys, held_values = _read(select.view, self.planes, layer)
        rows = torch.arange(self.run.start, self.run.end, device=queries.device)
        behind = rows[:, None] - torch.arange(len(held_keys), device=queries.device)
        visible = (behind >= 0) & (behind < (window or self.run.end))
        scores = select.score(queries, keys, values, Reused(held_keys, held_values, visible, scale))
        best = scores.sort(descending=True, stable=True).indices[: len(select.kept)]
        select.kept.settle(rows[best.sort().values])


def _read(view: View, planes: Mapping[str, Plane], layer: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys and values of one layer of a view in full, [T, ...] each: copies."""
    plane = planes[view.plane]
    keys, values = (_rows(plane, view.runs, part, layer) for part in ("k", "v"))
    for overlay in view.overlays:
        over = planes[overlay.plane]
        if overlay.runs and layer in over.spec.layers:
            own = send(torch.cat([places.positions for places in overlay.places]), plane.device)
            for part, rows in (("k", keys), ("v", values)):
                rows[own] = _rows(over, overlay.runs, part, layer)
    return keys, values


def _rows(plane: Plane, runs: Sequence[Run], part: str, layer: int) -> torch.Tensor:
    return torch.cat([plane.locate(run).read(part, layer) for run in runs])
