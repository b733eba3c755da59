"""Reference of `lora_shrink_expand`: torch only."""

from collections.abc import Sequence
from typing import NamedTuple

import torch

from agentrt_kernels.limits import check_rank


class Span(NamedTuple):
    """Rows `[start, end)` of a packed step, all of one adapter."""

    start: int
    end: int
    adapter: int


class Weights(NamedTuple):
    """One adapter's term of one projection: (x @ down) @ up, scaling included in `up`."""

    down: torch.Tensor  # [d_in, r]
    up: torch.Tensor  # [r, d_out]


def lora_shrink_expand(
    x: torch.Tensor, out: torch.Tensor, spans: Sequence[Span], weights: Sequence[Weights | None]
) -> None:
    """Add each row's own term to `out` [rows, d_out]; x [rows, d_in]. An adapter without weights adds nothing.

    Raises ValueError naming what does not fit.
    """
    check(x, out, spans, weights)
    for start, end, adapter in spans:
        term = weights[adapter]
        if term is not None:
            out[start:end] += (x[start:end].to(term.down.dtype) @ term.down @ term.up).to(out.dtype)


def check(x: torch.Tensor, out: torch.Tensor, spans: Sequence[Span], weights: Sequence[Weights | None]) -> None:
    """Raises ValueError naming the argument that is wrong."""
    for index, term in enumerate(weights):
        if term is None:
            continue
        rank = term.down.shape[1]
        check_rank(f"weights[{index}]", rank)
        if tuple(term.down.shape) != (x.shape[1], rank) or tuple(term.up.shape) != (rank, out.shape[1]):
            shapes = (tuple(term.down.shape), tuple(term.up.shape))
            raise ValueError(f"weights[{index}]: shapes {shapes} do not map {x.shape[1]} to {out.shape[1]} numbers")
        if term.down.dtype != term.up.dtype or term.down.dtype not in (x.dtype, torch.float32):
            raise ValueError(f"weights[{index}]: dtypes {term.down.dtype}, {term.up.dtype} with x's {x.dtype}")
    if out.dtype != x.dtype:
        raise ValueError(f"out: dtype {out.dtype} differs from x's {x.dtype}")
    check_spans(spans, len(x), len(weights))


def check_spans(spans: Sequence[Span], num_rows: int, num_adapters: int) -> None:
    """Raises ValueError for a span outside `num_rows` rows, or of an adapter that is not there."""
    for index, (start, end, adapter) in enumerate(spans):
        if not 0 <= start < end <= num_rows:
            raise ValueError(f"spans[{index}]: [{start}, {end}) are no rows of {num_rows}")
        if not 0 <= adapter < num_adapters:
            raise ValueError(f"spans[{index}]: adapter {adapter} of {num_adapters}")
