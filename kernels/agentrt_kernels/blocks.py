"""Triton helpers that several kernels share. Imports triton: only triton.py files may import this."""

import triton
import triton.language as tl


@triton.jit
def dot(b_a, b_b, UPCAST: tl.constexpr):
    """a @ b, summed in fp32. fp32 operands are not rounded to tf32; UPCAST: see `machine.upcasts`."""
    if UPCAST:
        b_a, b_b = b_a.to(tl.float32), b_b.to(tl.float32)
    return tl.dot(b_a, b_b, input_precision="ieee")


@triton.jit
def rows(
    p,
    stride,
    o_row,
    m_row,
    width,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    MASKED: tl.constexpr,
):
    """Rows `o_row` (int64) of a matrix, [len(o_row), BLOCK], zeros from column `width` on.

    Where WIDTH is not 0, `width` is WIDTH or 0: a mask known at compile time keeps loads wide. Without MASKED all
    rows exist.
    """
    o_column = tl.arange(0, BLOCK)
    p_tile = p + o_row[:, None] * stride + o_column[None, :]
    m_column = o_column < width
    if WIDTH > 0:
        m_column = (o_column < WIDTH) & (tl.zeros([BLOCK], tl.int32) + width > 0)
    m_column = m_column[None, :]
    return tl.load(p_tile, m_row[:, None] & m_column, 0.0) if MASKED else tl.load(p_tile, m_column, 0.0)
