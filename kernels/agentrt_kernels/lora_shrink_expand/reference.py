"""Reference of `lora_shrink_expand`: torch only."""

from collections.abc import Sequence
from typing import NamedTuple

import torch

from agentrt_kernels.limits import check_dtype, check_rank


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
    if any(weights):
        check_weights(weights)
        first = next(term for term in weights if term is not None)
        check_product(x, out, first.down.shape[0], first.up.shape[1], first.down.dtype)
    check_spans(spans, len(x), len(weights))


def check_weights(weights: Sequence[Weights | None]) -> None:
    """Raises ValueError for a term that no kernel takes, or that is not of the same projection as the first."""
    first = next((term for term in weights if term is not None), None)
    if first is None:
        raise ValueError("weights: no adapter has a term")
    for index, term in enumerate(weights):
        if term is None:
            continue
        rank, num_in, num_out = term.down.shape[-1], first.down.shape[0], first.up.shape[-1]
        check_rank(f"weights[{index}]", rank)
        if (tuple(term.down.shape), tuple(term.up.shape)) != ((num_in, rank), (rank, num_out)):
            shapes = f"{tuple(term.down.shape)}, {tuple(term.up.shape)}"
            raise ValueError(f"weights[{index}]: shapes {shapes} do not map {num_in} to {num_out} numbers")
        if not term.down.dtype == term.up.dtype == first.down.dtype:
            dtypes = f"{term.down.dtype}, {term.up.dtype}"
            raise ValueError(f"weights[{index}]: dtypes {dtypes}, expected {first.down.dtype} for all")


def check_product(x: torch.Tensor, out: torch.Tensor, num_in: int, num_out: int, dtype: torch.dtype) -> None:
    """Raises ValueError where terms from `num_in` to `num_out` numbers, of `dtype`, do not go with x and out."""
    check_dtype("x", x.dtype)
    if x.dim() != 2 or x.shape[1] != num_in:
        raise ValueError(f"x: shape {tuple(x.shape)}, expected [rows, {num_in}]")
    if tuple(out.shape) != (x.shape[0], num_out):
        raise ValueError(f"out: shape {tuple(out.shape)}, expected {(x.shape[0], num_out)}")
    if out.dtype != x.dtype:
        raise ValueError(f"out: dtype {out.dtype} differs from x's {x.dtype}")
    if dtype not in (x.dtype, torch.float32):
        raise ValueError(f"weights: dtype {dtype} does not go with x's {x.dtype}")


def check_spans(spans: Sequence[Span], num_rows: int, num_adapters: int) -> None:
    """Raises ValueError for a span outside `num_rows` rows, or of an adapter that is not there."""
    for index, (start, end, adapter) in enumerate(spans):
        if not 0 <= start < end <= num_rows:
            raise ValueError(f"spans[{index}]: [{start}, {end}) are no rows of {num_rows}")
        if not 0 <= adapter < num_adapters:
            raise ValueError(f"spans[{index}]: adapter {adapter} of {num_adapters}")
