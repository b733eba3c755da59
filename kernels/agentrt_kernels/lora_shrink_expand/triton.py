"""Triton version of `lora_shrink_expand`: two launches for any mix of adapters. Imports triton: import it late."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
import triton
import triton.language as tl

from agentrt_kernels.blocks import dot
from agentrt_kernels.lora_shrink_expand.reference import Span, Weights, check_product, check_weights
from agentrt_kernels.machine import block, element, upcasts
from agentrt_kernels.tables import Table, send

ROWS = 64
"""Rows of one program, at most."""
SLICE = 1024
"""Inputs that one program of the shrink sums; the expand adds the slices, in order."""


class Terms(NamedTuple):
    """The terms of all adapters of one projection, as the kernels read them."""

    where: torch.Tensor
    """[adapters, 3] int64 on the device: down, up, rank; rank 0 where there is no term."""
    max_rank: int
    num_in: int
    num_out: int
    dtype: torch.dtype

    @classmethod
    def of(cls, weights: Sequence[Weights | None], device: torch.device | str) -> "Terms":
        """Of these, one at least; whoever made them keeps them. Raises ValueError naming one that does not fit."""
        check_weights(weights)
        rows = []
        for index, term in enumerate(weights):
            if term is not None and not (term.down.is_contiguous() and term.up.is_contiguous()):
                raise ValueError(f"weights[{index}]: must be contiguous")
            rows.append((0, 0, 0) if term is None else (term.down.data_ptr(), term.up.data_ptr(), term.down.shape[1]))
        first = next(term for term in weights if term is not None)
        where = send(torch.tensor(rows, dtype=torch.int64), device)
        return cls(where, max(row[2] for row in rows), first.down.shape[0], first.up.shape[1], first.down.dtype)

    def scratch_size(self, num_rows: int) -> int:
        """How many fp32 numbers `shrink_expand` wants for so many rows."""
        return -(-self.num_in // SLICE) * num_rows * block(self.max_rank)


def table(spans: Sequence[Span]) -> Table:
    """`spans` cut into pieces of at most ROWS rows: first row, rows, adapter."""
    pieces = []
    for start, end, adapter in spans:
        pieces += [(first, min(ROWS, end - first), adapter) for first in range(start, end, ROWS)]
    return Table(pieces, 3)


def shrink_expand(
    x: torch.Tensor,
    out: torch.Tensor,
    pieces: torch.Tensor,
    terms: Terms,
    scratch: torch.Tensor,
    *,
    few_rows: bool = False,
) -> None:
    """x [rows, d_in], out [rows, d_out], rows contiguous; `scratch`: fp32, at least `terms.scratch_size(rows)`.

    With `few_rows` no piece has more than 16 rows. Raises ValueError naming what does not fit.
    """
    check_product(x, out, terms.num_in, terms.num_out, terms.dtype)
    if x.stride(1) != 1 or out.stride(1) != 1:
        raise ValueError("x, out: rows must be contiguous")
    num_rows = x.shape[0]
    if len(scratch) < terms.scratch_size(num_rows):
        raise ValueError(f"scratch: {len(scratch)} numbers, {terms.scratch_size(num_rows)} are needed")
    slices = -(-terms.num_in // SLICE)
    shared = {
        "BLOCK_M": 16 if few_rows else ROWS,
        "BLOCK_R": block(terms.max_rank),
        "TYPE": element(terms.dtype),
        "UPCAST": upcasts(terms.dtype),
        "num_warps": 4,
    }
    full = terms.dtype == torch.float32
    width, depth = (64, 64) if full else (128, 128)
    where, num_in, num_out = terms.where, terms.num_in, terms.num_out
    shrink_kernel[(len(pieces), slices)](
        x, pieces, where, scratch, x.stride(0), num_rows, num_in, SLICE=SLICE, BLOCK_K=depth, **shared
    )
    expand_kernel[(len(pieces), triton.cdiv(num_out, width))](
        out, pieces, where, scratch, out.stride(0), num_rows, num_out, slices, BLOCK_N=width, **shared
    )


@triton.jit
def shrink_kernel(
    p_x,
    p_pieces,
    p_weights,
    p_low,
    x_stride,
    num_rows,
    num_in,
    SLICE: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_R: tl.constexpr,
    TYPE: tl.constexpr,
    UPCAST: tl.constexpr,
):
    """x @ A of one piece of rows over one slice of the inputs."""
    piece = p_pieces + tl.program_id(0) * 3
    part = tl.program_id(1)
    first, count = tl.load(piece), tl.load(piece + 1)
    weights = p_weights + tl.load(piece + 2) * 3
    rank = tl.load(weights + 2)
    if (rank == 0) | (count == 0):
        return
    p_down = tl.load(weights).to(tl.pointer_type(TYPE))
    o_m = tl.arange(0, BLOCK_M)
    o_k = tl.arange(0, BLOCK_K)
    o_r = tl.arange(0, BLOCK_R)
    m_m = o_m < count
    o_row = (first + o_m).to(tl.int64)
    b_sum = tl.zeros([BLOCK_M, BLOCK_R], tl.float32)
    for start in range(part * SLICE, tl.minimum(part * SLICE + SLICE, num_in), BLOCK_K):
        o_in = start + o_k
        m_in = o_in < num_in
        b_x = tl.load(p_x + o_row[:, None] * x_stride + o_in[None, :], m_m[:, None] & m_in[None, :], 0.0)
        m_down = m_in[:, None] & (o_r < rank)[None, :]
        b_down = tl.load(p_down + o_in[:, None] * rank + o_r[None, :], m_down, 0.0)
        b_sum += dot(b_x.to(TYPE), b_down, UPCAST)
    o_low = (part * num_rows + o_row) * BLOCK_R
    tl.store(p_low + o_low[:, None] + o_r[None, :], b_sum, m_m[:, None])


@triton.jit
def expand_kernel(
    p_out,
    p_pieces,
    p_weights,
    p_low,
    out_stride,
    num_rows,
    num_out,
    slices,
    BLOCK_N: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_R: tl.constexpr,
    TYPE: tl.constexpr,
    UPCAST: tl.constexpr,
):
    """out += (sum of the slices) @ B for one piece of rows and BLOCK_N outputs."""
    piece = p_pieces + tl.program_id(0) * 3
    first, count = tl.load(piece), tl.load(piece + 1)
    weights = p_weights + tl.load(piece + 2) * 3
    rank = tl.load(weights + 2)
    if (rank == 0) | (count == 0):
        return
    p_up = tl.load(weights + 1).to(tl.pointer_type(TYPE))
    o_m = tl.arange(0, BLOCK_M)
    o_r = tl.arange(0, BLOCK_R)
    o_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    m_m = o_m < count
    m_n = o_n < num_out
    o_row = (first + o_m).to(tl.int64)
    b_low = tl.zeros([BLOCK_M, BLOCK_R], tl.float32)
    for part in range(slices):
        o_low = (part * num_rows + o_row) * BLOCK_R
        b_low += tl.load(p_low + o_low[:, None] + o_r[None, :], m_m[:, None], 0.0)
    b_up = tl.load(p_up + o_r[:, None] * num_out + o_n[None, :], (o_r < rank)[:, None] & m_n[None, :], 0.0)
    p_o = p_out + o_row[:, None] * out_stride + o_n[None, :]
    m_o = m_m[:, None] & m_n[None, :]
    b_out = tl.load(p_o, m_o, 0.0).to(tl.float32) + dot(b_low.to(TYPE), b_up, UPCAST)
    tl.store(p_o, b_out.to(p_out.dtype.element_ty), m_o)
