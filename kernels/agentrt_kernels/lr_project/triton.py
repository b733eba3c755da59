"""Triton version of `lr_project`: one launch, all adapters' columns in one product. Imports triton: import it late."""

import itertools
from collections.abc import Sequence

import torch
import triton
import triton.language as tl

from agentrt_kernels.blocks import dot
from agentrt_kernels.limits import check_rank
from agentrt_kernels.lr_project.reference import Deposit, check_product
from agentrt_kernels.machine import block, element, upcasts
from agentrt_kernels.tables import Table

ROWS = 64
"""Rows of one program, at most."""


def table(deposits: Sequence[Deposit], num_adapters: int) -> Table:
    """Rows first, count and, for each adapter, (segment or -1, row): cut wherever some adapter's slots end."""
    pieces = []
    for start, end, targets in deposits:
        edges = {start, end, *range(start, end, ROWS)}
        edges.update(target.start for each in targets.values() for target in each)
        for low, high in itertools.pairwise(sorted(edges)):
            piece = [low, high - low, *([-1, 0] * num_adapters)]
            for adapter, each in targets.items():
                target = next(target for target in each if target.start <= low < target.end)
                piece[2 + 2 * adapter : 4 + 2 * adapter] = target.segment, target.row + low - target.start
            pieces.append(piece)
    return Table(pieces, 2 + 2 * num_adapters)


def column_table(ranks: Sequence[int]) -> Table:
    """For each column of [A_1 | A_2 | …] its adapter and its place in that adapter's rows."""
    for index, rank in enumerate(ranks):
        check_rank(f"ranks[{index}]", rank)
    return Table([(adapter, column) for adapter, rank in enumerate(ranks) for column in range(rank)], 2)


def project(
    x: torch.Tensor,
    down: torch.Tensor,
    pieces: torch.Tensor,
    columns: torch.Tensor,
    addresses: torch.Tensor,
    dtype: torch.dtype,
    *,
    few_rows: bool = False,
) -> None:
    """x [rows, D] and down [D, columns], both row-contiguous; `addresses` [segments, 2]: (rows, row stride).

    `dtype` is the segments'. With `few_rows` no piece has more than 16 rows. Raises ValueError naming what is wrong.
    """
    check_product(x, down, len(columns), dtype)
    if x.stride(1) != 1 or not down.is_contiguous():
        raise ValueError("x, down: rows must be contiguous")
    total = down.shape[1]
    width = min(block(total), 128)
    project_kernel[(len(pieces), triton.cdiv(total, width))](
        x,
        down,
        pieces,
        columns,
        addresses,
        x.stride(0),
        x.shape[1],
        total,
        PIECE=pieces.shape[1],
        BLOCK_M=16 if few_rows else ROWS,
        BLOCK_K=128 if down.dtype != torch.float32 else 64,
        BLOCK_C=width,
        TYPE=element(dtype),
        UPCAST=upcasts(down.dtype),
        num_warps=4,
        num_stages=3,
    )


@triton.jit
def project_kernel(
    p_x,
    p_down,
    p_pieces,
    p_columns,
    p_into,
    x_stride,
    num_in,
    num_columns,
    PIECE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK_C: tl.constexpr,
    TYPE: tl.constexpr,
    UPCAST: tl.constexpr,
):
    """One piece of rows and BLOCK_C columns a program."""
    piece = p_pieces + tl.program_id(0) * PIECE
    first, count = tl.load(piece), tl.load(piece + 1)
    if count == 0:
        return
    o_m = tl.arange(0, BLOCK_M)
    o_c = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    o_k = tl.arange(0, BLOCK_K)
    m_m = o_m < count
    m_c = o_c < num_columns
    p_rows = p_x + (first + o_m).to(tl.int64)[:, None] * x_stride
    b_sum = tl.zeros([BLOCK_M, BLOCK_C], tl.float32)
    for start in range(0, num_in, BLOCK_K):
        o_in = start + o_k
        m_in = o_in < num_in
        b_x = tl.load(p_rows + o_in[None, :], m_m[:, None] & m_in[None, :], 0.0)
        b_down = tl.load(p_down + o_in[:, None] * num_columns + o_c[None, :], m_in[:, None] & m_c[None, :], 0.0)
        b_sum += dot(b_x.to(b_down.dtype), b_down, UPCAST)
    adapter = tl.load(p_columns + o_c * 2, m_c, 0)
    column = tl.load(p_columns + o_c * 2 + 1, m_c, 0)
    segment = tl.load(piece + 2 + adapter * 2, m_c, -1)
    row = tl.load(piece + 3 + adapter * 2, m_c, 0)
    m_c = m_c & (segment >= 0)
    address = tl.load(p_into + segment * 2, m_c, 0)
    stride = tl.load(p_into + segment * 2 + 1, m_c, 0)
    p_out = address.to(tl.pointer_type(TYPE))[None, :] + (row[None, :] + o_m[:, None]) * stride[None, :]
    tl.store(p_out + column[None, :], b_sum.to(TYPE), m_m[:, None] & m_c[None, :])
