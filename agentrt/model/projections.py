"""Wrappers of the backbone's linear layers: the base product, plus each row's own low-rank term."""

from collections.abc import Callable

import torch
from torch import nn

from agentrt.model.columns import write_columns
from agentrt.model.context import StepContext
from agentrt.model.lowrank import KEY, VALUE, Site


class AdaptedLinear(nn.Module):
    """y = x W^T + b + (x @ down) @ up for the rows whose path adapts this projection.

    v_proj also deposits the low-rank activations that this step writes; it leaves the term itself out for rows
    whose values stay factored. k_proj deposits its base product where keys stay factored. The low-rank product runs
    in the adapters' own dtype.
    """

    def __init__(self, base: Callable[[torch.Tensor], torch.Tensor], site: Site, context: StepContext) -> None:
        super().__init__()
        self._base = base
        self.site = site
        self._context = context

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self._base(x)
        context = self._context
        if context.kernels is not None:
            if self.site.projection == KEY and context.base_key_writes:
                context.kernels.write_base_keys(self.site.layer, out[0])
            context.kernels.add_terms(self.site, x[0], out[0])
            if self.site.projection == VALUE:
                context.kernels.deposit(self.site.layer, x[0])
            return out
        if self.site.projection == KEY and context.base_key_writes:
            context.base_key_writes.write("k0", self.site.layer, out[0])
        for start, end, path in context.rows_of(self.site.projection):
            weights = context.adapters.weights[path].get(self.site)
            if weights is not None:
                whole = end - start == x.shape[1]  # every slice is a call, and a decode step is made of small calls
                rows = x if whole else x[:, start:end]
                term = rows.to(weights.down.dtype) @ weights.down @ weights.up
                (out if whole else out[:, start:end]).add_(term)
        if self.site.projection == VALUE and context.column_writes:
            write_columns(context, self.site.layer, x[0])
        return out
