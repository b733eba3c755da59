"""Triton version of `kv_append`: one launch for all rows of a step. Imports triton: import it late."""

from collections.abc import Sequence

import torch
import triton
import triton.language as tl

from agentrt_kernels.kv_append.reference import Target, check_rows
from agentrt_kernels.tables import Table

ROWS = 16
"""Rows of one program."""


def table(targets: Sequence[Target]) -> Table:
    """`targets` cut into pieces of at most ROWS rows."""
    pieces = []
    for start, end, segment, row in targets:
        for first in range(start, end, ROWS):
            pieces.append((first, min(ROWS, end - first), segment, row + first - start))
    return Table(pieces, 4)


def append(k: torch.Tensor, v: torch.Tensor, pieces: torch.Tensor, addresses: torch.Tensor, into: torch.Tensor) -> None:
    """k and v [rows, Hkv, d] as the caller has them (last dimension contiguous); `addresses` [segments, 2] int64, 0 for
    a segment without keys or without values: nothing of that kind is written there.

    `into`: one of the segments, [slots, Hkv, d]; all are alike. Raises ValueError naming what does not fit.
    """
    check_rows(k, v, into)
    if k.stride(2) != 1 or v.stride(2) != 1:
        raise ValueError("k, v: the last dimension must be contiguous")
    kv_heads, d = k.shape[1:]
    append_kernel[(len(pieces), kv_heads)](
        k,
        v,
        pieces,
        addresses,
        k.stride(0),
        k.stride(1),
        v.stride(0),
        v.stride(1),
        KV_HEADS=kv_heads,
        D=d,
        BLOCK_D=triton.next_power_of_2(d),
        BLOCK_M=ROWS,
    )


@triton.jit
def append_kernel(
    p_k,
    p_v,
    p_pieces,
    p_into,
    k_row,
    k_head,
    v_row,
    v_head,
    KV_HEADS: tl.constexpr,
    D: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_M: tl.constexpr,
):
    """One piece of rows and one head a program."""
    piece = p_pieces + tl.program_id(0) * 4
    head = tl.program_id(1)
    first, count, slot = tl.load(piece), tl.load(piece + 1), tl.load(piece + 3)
    into = p_into + tl.load(piece + 2) * 2
    o_m = tl.arange(0, BLOCK_M)
    o_d = tl.arange(0, BLOCK_D)
    m_tile = (o_m < count)[:, None] & (o_d < D)[None, :]
    o_row = (first + o_m).to(tl.int64)
    o_to = ((slot + o_m).to(tl.int64) * (KV_HEADS * D) + head * D)[:, None] + o_d[None, :]
    element = p_k.dtype.element_ty
    into_k, into_v = tl.load(into), tl.load(into + 1)
    if into_k != 0:
        b_k = tl.load(p_k + (o_row * k_row + head * k_head)[:, None] + o_d[None, :], m_tile)
        tl.store(into_k.to(tl.pointer_type(element)) + o_to, b_k, m_tile)
    if into_v != 0:
        b_v = tl.load(p_v + (o_row * v_row + head * v_head)[:, None] + o_d[None, :], m_tile)
        tl.store(into_v.to(tl.pointer_type(element)) + o_to, b_v, m_tile)
