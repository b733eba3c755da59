"""Which rows of a pass go on: the selection of its plan, by one layer's q, k, v and what they would replace."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch

from agentrt.cache.plane import Plane
from agentrt.cache.slots import Run
from agentrt.cache.view import View
from agentrt.step import Pass, Reused


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
        held = {part: _read(select.view, self.planes, part, layer) for part in ("k", "v")}
        rows = torch.arange(self.run.start, self.run.end, device=queries.device)
        behind = rows[:, None] - torch.arange(len(held["k"]), device=queries.device)
        visible = (behind >= 0) & (behind < (window or self.run.end))
        scores = select.score(queries, keys, values, Reused(held["k"], held["v"], visible, scale))
        best = scores.sort(descending=True, stable=True).indices[: len(select.kept)]
        select.kept.settle(rows[best.sort().values])


def _read(view: View, planes: Mapping[str, Plane], part: str, layer: int) -> torch.Tensor:
    """One layer of a view in full, [T, ...]: a copy."""
    rows = _rows(planes[view.plane], view.runs, part, layer)
    for overlay in view.overlays:
        if overlay.runs and layer in planes[overlay.plane].spec.layers:
            own = torch.cat([places.positions for places in overlay.places]).to(rows.device)
            rows[own] = _rows(planes[overlay.plane], overlay.runs, part, layer)
    return rows


def _rows(plane: Plane, runs: Sequence[Run], part: str, layer: int) -> torch.Tensor:
    return torch.cat([plane.locate(run).read(part, layer) for run in runs])
