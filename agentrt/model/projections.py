"""Wrappers of the backbone's linear layers: the base product, plus each row's own low-rank term."""

import torch
from torch import nn

from agentrt.model.context import StepContext, write_columns
from agentrt.model.lowrank import Site


class AdaptedLinear(nn.Module):
    """y = base(x) + (x @ down) @ up for the rows whose path adapts this projection.

    v_proj also deposits the low-rank activations that this step writes; it leaves the term itself out for rows
    whose values stay factored.
    """

    def __init__(self, base: nn.Module, site: Site, context: StepContext) -> None:
        super().__init__()
        self.base = base
        self.site = site
        self._context = context

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.base(x)
        flat_x, flat_out = x[0], out[0]
        context = self._context
        for rows in context.rows_of(self.site.projection):
            weights = context.adapters.weights[rows.path].get(self.site)
            if weights is not None:
                part = slice(rows.start, rows.end)
                flat_out[part].addmm_(flat_x[part] @ weights.down, weights.up)
        if self.site.projection == "v_proj" and context.column_writes:
            write_columns(context, self.site.layer, flat_x)
        return out
