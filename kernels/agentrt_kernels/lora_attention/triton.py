"""Triton kernels of `lora_attention`: one launch for a packed step, and the combine of split keys. See README.md.

They know the tables of plan.py. Names: p_ pointer, b_ block, o_ offsets, m_ mask.
"""

import triton
import triton.language as tl

from agentrt_kernels.blocks import dot, rows


@triton.jit
def _read(
    b_acc,  # [BLOCK_M, BLOCK_D]: sums of weighted base values
    b_low,  # [BLOCK_M, BLOCK_R]: sums of weighted low-rank rows
    b_sum,
    b_max,
    b_q,
    b_position,
    b_key_up,
    b_key_turned,
    p_k,
    p_v,
    p_lr,
    p_lrk,
    p_cos,
    p_sin,
    position,
    begin,
    end,
    scale,
    window,
    lr_stride,
    lrk_stride,
    rank,
    key_rank,
    KV_STRIDE: tl.constexpr,
    D: tl.constexpr,
    RANK: tl.constexpr,
    KEY_RANK: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCK_KR: tl.constexpr,
    ROTATE: tl.constexpr,
    MASKED: tl.constexpr,
    WINDOW: tl.constexpr,
    UPCAST: tl.constexpr,
):
    """Keys at positions [begin, end) of a run; its pointers are those of the row at `position`.

    Without MASKED every query sees every key and the length is a multiple of BLOCK_N.
    """
    for first in range(begin, end, BLOCK_N):
        o_key = first + tl.arange(0, BLOCK_N)
        o_row = (o_key - position).to(tl.int64)
        m_key = o_key < end
        b_k = rows(p_k, KV_STRIDE, o_row, m_key, D, D, BLOCK_D, MASKED)  # [BLOCK_N, BLOCK_D]
        if BLOCK_KR > 0:  # K = base + rope(LRK Bk): RoPE depends on the key's own position
            b_lrk = rows(p_lrk, lrk_stride, o_row, m_key, key_rank, KEY_RANK, BLOCK_KR, MASKED).to(b_key_up.dtype)
            b_delta = dot(b_lrk, b_key_up, UPCAST)
            if ROTATE:
                b_cos = rows(p_cos, D, o_key.to(tl.int64), m_key, D, D, BLOCK_D, MASKED)
                b_sin = rows(p_sin, D, o_key.to(tl.int64), m_key, D, D, BLOCK_D, MASKED)
                b_delta = b_delta * b_cos + dot(b_lrk, b_key_turned, UPCAST) * b_sin
            b_k = (b_k.to(tl.float32) + b_delta).to(b_k.dtype)
        b_score = dot(b_q, tl.trans(b_k), UPCAST) * scale  # [BLOCK_M, BLOCK_N], base 2
        if MASKED:
            m_seen = (o_key[None, :] <= b_position[:, None]) & m_key[None, :]
            if WINDOW:
                m_seen &= o_key[None, :] > b_position[:, None] - window
            b_score = tl.where(m_seen, b_score, float("-inf"))
        b_new = tl.maximum(b_max, tl.max(b_score, 1))
        b_shift = b_new
        if MASKED:  # a row that has seen nothing yet has the maximum -inf
            b_shift = tl.where(b_new == float("-inf"), 0.0, b_new)
        b_weight = tl.exp2(b_score - b_shift[:, None])
        b_decay = tl.exp2(b_max - b_shift)
        b_max = b_new
        b_sum = b_sum * b_decay + tl.sum(b_weight, 1)
        b_v = rows(p_v, KV_STRIDE, o_row, m_key, D, D, BLOCK_D, MASKED)
        b_weight = b_weight.to(b_v.dtype)
        b_acc = b_acc * b_decay[:, None] + dot(b_weight, b_v, UPCAST)
        if BLOCK_R > 0:
            b_lr = rows(p_lr, lr_stride, o_row, m_key, rank, RANK, BLOCK_R, MASKED).to(b_v.dtype)
            b_low = b_low * b_decay[:, None] + dot(b_weight, b_lr, UPCAST)
    return b_acc, b_low, b_sum, b_max


@triton.jit
def attend_kernel(
    p_q,
    p_position,
    p_out,
    p_work,
    p_runs,
    p_kv,
    p_lr,
    p_lrk,
    p_up,
    p_key_up,
    p_cos,
    p_sin,
    p_part,
    p_part_low,
    p_part_lse,
    q_row_stride,
    q_head_stride,
    scale,
    window,
    KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    D: tl.constexpr,
    RANK: tl.constexpr,
    KEY_RANK: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCK_KR: tl.constexpr,
    LR_TYPE: tl.constexpr,
    UP_TYPE: tl.constexpr,
    KEY_UP_TYPE: tl.constexpr,
    ROTATE: tl.constexpr,
    WINDOW: tl.constexpr,
    ALIGN: tl.constexpr,
    LR_ALIGN: tl.constexpr,
    UPCAST: tl.constexpr,
):
    """One work item (a tile of queries over a range of keys) and one key/value head a program."""
    work = p_work + tl.program_id(0) * 9
    head = tl.program_id(1)
    row, num_rows = tl.load(work), tl.load(work + 1)
    first_run, last_run = tl.load(work + 2), tl.load(work + 3)
    low, high = tl.load(work + 4), tl.load(work + 5)
    visible, adapter, part = tl.load(work + 6), tl.load(work + 7), tl.load(work + 8)
    q_type = p_q.dtype.element_ty

    o_m = tl.arange(0, BLOCK_M)
    o_d = tl.arange(0, BLOCK_D)
    o_row = (row + o_m // GROUP).to(tl.int64)
    o_head = head * GROUP + o_m % GROUP
    m_row = o_m < num_rows * GROUP
    m_q = m_row[:, None] & (o_d < D)[None, :]
    b_q = tl.load(p_q + o_row[:, None] * q_row_stride + o_head[:, None] * q_head_stride + o_d[None, :], m_q, 0.0)
    b_position = tl.load(p_position + o_row, m_row, -1)

    b_acc = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    b_low = tl.zeros([BLOCK_M, BLOCK_R if BLOCK_R > 0 else 1], tl.float32)
    b_sum = tl.zeros([BLOCK_M], tl.float32)
    b_max = tl.full([BLOCK_M], float("-inf"), tl.float32)

    rank, key_rank = 0, 0
    b_key_up = b_q
    b_key_turned = b_q
    if adapter >= 0:
        if BLOCK_R > 0:
            rank = tl.load(p_up + adapter * 2 + 1).to(tl.int32)
        if BLOCK_KR > 0:
            key_rank = tl.load(p_key_up + adapter * 2 + 1).to(tl.int32)
    if BLOCK_KR > 0:
        # rope(x) = x cos + turn(x) sin with turn(x) = [-x2, x1], and turn(LRK Bk) = LRK turn(Bk)
        o_kr = tl.arange(0, BLOCK_KR)
        p_b = tl.load(p_key_up + tl.maximum(adapter, 0) * 2).to(tl.pointer_type(KEY_UP_TYPE))
        p_b += o_kr[:, None] * (KV_HEADS * D) + head * D
        m_b = (o_kr < key_rank)[:, None] & (o_d < D)[None, :]
        b_key_up = tl.load(p_b + o_d[None, :], m_b, 0.0).to(q_type)
        b_turned = tl.load(p_b + ((o_d + D // 2) % D)[None, :], m_b, 0.0).to(tl.float32)
        b_key_turned = tl.where((o_d < D // 2)[None, :], -b_turned, b_turned).to(q_type)

    KV_STRIDE: tl.constexpr = KV_HEADS * D
    LR_STEP: tl.constexpr = LR_ALIGN * 8 // LR_TYPE.primitive_bitwidth
    for run in range(first_run, last_run):
        entry = p_runs + run * 10
        position, size = tl.load(entry), tl.load(entry + 1)
        begin, end = tl.maximum(position, low), tl.minimum(position + size, high)
        k, v = p_kv + tl.load(entry + 2) * 2, p_kv + tl.load(entry + 4) * 2 + 1
        p_k = tl.multiple_of(tl.load(k).to(tl.pointer_type(q_type)), ALIGN)
        p_k += tl.load(entry + 3).to(tl.int64) * KV_STRIDE + head * D
        p_v = tl.multiple_of(tl.load(v).to(tl.pointer_type(q_type)), ALIGN)
        p_v += tl.load(entry + 5).to(tl.int64) * KV_STRIDE + head * D
        p_l = p_k.to(tl.pointer_type(LR_TYPE))
        p_lk = p_l
        lr_stride = KV_STRIDE
        lrk_stride = KV_STRIDE
        run_rank, run_key_rank = 0, 0
        if BLOCK_R > 0:
            segment = tl.load(entry + 6)
            run_rank = tl.where(segment >= 0, rank, 0)
            lr = p_lr + tl.maximum(segment, 0) * 2
            lr_stride = tl.multiple_of(tl.load(lr + 1), LR_STEP)
            p_l = tl.multiple_of(tl.load(lr).to(tl.pointer_type(LR_TYPE)), LR_ALIGN) + tl.load(entry + 7) * lr_stride
        if BLOCK_KR > 0:
            segment = tl.load(entry + 8)
            run_key_rank = tl.where(segment >= 0, key_rank, 0)
            lrk = p_lrk + tl.maximum(segment, 0) * 2
            lrk_stride = tl.multiple_of(tl.load(lrk + 1), LR_STEP)
            p_lk = tl.multiple_of(tl.load(lrk).to(tl.pointer_type(LR_TYPE)), LR_ALIGN) + tl.load(entry + 9) * lrk_stride
        middle = begin
        if not WINDOW:
            middle += tl.maximum(tl.minimum(end, visible) - begin, 0) // BLOCK_N * BLOCK_N
            b_acc, b_low, b_sum, b_max = _read(
                b_acc, b_low, b_sum, b_max, b_q, b_position, b_key_up, b_key_turned, p_k, p_v, p_l, p_lk, p_cos, p_sin,
                position, begin, middle, scale, window, lr_stride, lrk_stride, run_rank, run_key_rank,
                KV_STRIDE, D, RANK, KEY_RANK, BLOCK_N, BLOCK_D, BLOCK_R, BLOCK_KR, ROTATE, False, WINDOW, UPCAST,
            )  # fmt: skip
        b_acc, b_low, b_sum, b_max = _read(
            b_acc, b_low, b_sum, b_max, b_q, b_position, b_key_up, b_key_turned, p_k, p_v, p_l, p_lk, p_cos, p_sin,
            position, middle, end, scale, window, lr_stride, lrk_stride, run_rank, run_key_rank,
            KV_STRIDE, D, RANK, KEY_RANK, BLOCK_N, BLOCK_D, BLOCK_R, BLOCK_KR, ROTATE, True, WINDOW, UPCAST,
        )  # fmt: skip

    b_sum = tl.where(b_sum == 0.0, 1.0, b_sum)  # a row may see nothing of a part: its maximum stays -inf
    b_acc /= b_sum[:, None]
    b_low /= b_sum[:, None]
    if part < 0:
        if BLOCK_R > 0:
            b_acc += _apply_up(b_low, p_up, adapter, rank, head, KV_HEADS, D, BLOCK_D, BLOCK_R, UP_TYPE, UPCAST)
        p_o = p_out + (o_row * (KV_HEADS * GROUP) + o_head)[:, None] * D + o_d[None, :]
        tl.store(p_o, b_acc.to(p_out.dtype.element_ty), m_q)
    else:
        o_part = (part * KV_HEADS + head).to(tl.int64) * BLOCK_M + o_m
        tl.store(p_part_lse + o_part, b_max + tl.log2(b_sum), m_row)
        tl.store(p_part + o_part[:, None] * BLOCK_D + o_d[None, :], b_acc, m_row[:, None])
        if BLOCK_R > 0:
            o_r = tl.arange(0, BLOCK_R)
            tl.store(p_part_low + o_part[:, None] * BLOCK_R + o_r[None, :], b_low, m_row[:, None])


@triton.jit
def _apply_up(
    b_low,
    p_up,
    adapter,
    rank,
    head,
    KV_HEADS: tl.constexpr,
    D: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_R: tl.constexpr,
    UP_TYPE: tl.constexpr,
    UPCAST: tl.constexpr,
):
    """low @ (scaling B) of one head, [BLOCK_M, BLOCK_D]; zero where the rank is 0."""
    o_r = tl.arange(0, BLOCK_R)
    o_d = tl.arange(0, BLOCK_D)
    p_b = tl.load(p_up + tl.maximum(adapter, 0) * 2).to(tl.pointer_type(UP_TYPE))
    p_b += o_r[:, None] * (KV_HEADS * D) + head * D + o_d[None, :]
    b_up = tl.load(p_b, (o_r < rank)[:, None] & (o_d < D)[None, :], 0.0)
    return dot(b_low.to(UP_TYPE), b_up, UPCAST)


@triton.jit
def combine_kernel(
    p_out,
    p_tiles,
    p_up,
    p_part,
    p_part_low,
    p_part_lse,
    KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    D: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_R: tl.constexpr,
    UP_TYPE: tl.constexpr,
    UPCAST: tl.constexpr,
):
    """Put the parts of one split tile and head together by their log-sum-exp, then apply B once."""
    tile = p_tiles + tl.program_id(0) * 5
    head = tl.program_id(1)
    row, num_rows, adapter = tl.load(tile), tl.load(tile + 1), tl.load(tile + 2)
    first_part, last_part = tl.load(tile + 3), tl.load(tile + 4)
    o_m = tl.arange(0, BLOCK_M)
    o_d = tl.arange(0, BLOCK_D)
    o_r = tl.arange(0, BLOCK_R if BLOCK_R > 0 else 1)
    m_row = o_m < num_rows * GROUP
    b_acc = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    b_low = tl.zeros([BLOCK_M, BLOCK_R if BLOCK_R > 0 else 1], tl.float32)
    b_sum = tl.zeros([BLOCK_M], tl.float32)
    b_max = tl.full([BLOCK_M], float("-inf"), tl.float32)
    for part in range(first_part, last_part):
        o_part = (part * KV_HEADS + head).to(tl.int64) * BLOCK_M + o_m
        b_lse = tl.load(p_part_lse + o_part, m_row, float("-inf"))
        b_new = tl.maximum(b_max, b_lse)
        b_shift = tl.where(b_new == float("-inf"), 0.0, b_new)
        b_decay, b_weight = tl.exp2(b_max - b_shift), tl.exp2(b_lse - b_shift)
        b_max = b_new
        b_sum = b_sum * b_decay + b_weight
        b_part = tl.load(p_part + o_part[:, None] * BLOCK_D + o_d[None, :], m_row[:, None], 0.0)
        b_acc = b_acc * b_decay[:, None] + b_part * b_weight[:, None]
        if BLOCK_R > 0:
            b_part = tl.load(p_part_low + o_part[:, None] * BLOCK_R + o_r[None, :], m_row[:, None], 0.0)
            b_low = b_low * b_decay[:, None] + b_part * b_weight[:, None]
    b_sum = tl.where(m_row, b_sum, 1.0)
    b_acc /= b_sum[:, None]
    if BLOCK_R > 0:
        rank = 0
        if adapter >= 0:
            rank = tl.load(p_up + adapter * 2 + 1).to(tl.int32)
        b_low /= b_sum[:, None]
        b_acc += _apply_up(b_low, p_up, adapter, rank, head, KV_HEADS, D, BLOCK_D, BLOCK_R, UP_TYPE, UPCAST)
    o_row = (row + o_m // GROUP).to(tl.int64) * (KV_HEADS * GROUP) + head * GROUP + o_m % GROUP
    m_out = m_row[:, None] & (o_d < D)[None, :]
    tl.store(p_out + o_row[:, None] * D + o_d[None, :], b_acc.to(p_out.dtype.element_ty), m_out)
