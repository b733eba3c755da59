"""Decode attention for CPUs, compiled: reads keys, base values and low-rank rows once, in fp32, without packing.

A task is one chunk of keys for one key head, with all query heads of its group, of the row that reads them or of two.
It leaves a partial result a row: the chunk's maximum and sum of the softmax, and the weighted sums of [value | low-rank
row]. Whoever finishes a row's last chunk combines them and applies B, so that no thread waits for another. See
README.md.
"""

from functools import cache
from typing import Any, Final

import numba
import numpy as np
import torch
from numba import carray, types

from agentrt_kernels.native import address_of, as_bits, as_float, fetch_add, memory, prefetch, widen

CHUNK: Final = 256
"""Keys of one task at most: enough to pay for its start, few enough to keep the threads evenly loaded."""

AHEAD: Final = 32
"""Rows are asked for so many before they are needed: those of one head are lines apart, which no CPU foresees."""

PAD: Final = 16
"""Room for low-rank columns comes in whole vectors, of which nobody reads what lies past a row's rank."""

STORED: Final = {torch.bfloat16: np.uint16, torch.float32: np.float32}
"""How numpy names the elements of planes that these kernels read."""

# Columns of the tables of `decode.py`, all int64.
NEXT, TASKS, QUERY, OUT, LAYER, LAYERS, PIECES, CHUNKS, ROWS, LEFT, UPS, PARTS, SCALE, HEADS, RANK = range(15)
PIECE: Final = 9  # three times (address in layer 0, bytes from layer to layer, bytes from row to row): k, v, lr
FIRST, COUNT, MEMBER = range(3)  # a chunk: its first key in the piece, number of keys, the rows that read it
RUN, RANKED, OF, PART, SPAN = range(5)  # by row that reads it: its piece, rank read of lr, the row, its partial result
AT, PART0, NUM, UP, RANK_UP = range(5)  # a row: where in the packed step, its partial results, its adapter's B and rank
MEMBERS: Final = 2
NOBODY: Final = -1

_f32 = np.float32
_LOWEST = _f32(-3.0e38)
_OPTIONS: Final = {"fastmath": True, "error_model": "numpy"}
_inlined = numba.njit(forceinline=True, **_OPTIONS)
"""Part of the one function that is compiled, where widths and counts are constants as far as can be."""


@_inlined
def _exp2(x: Any) -> Any:
    """2 ** x for x <= 0, to 2e-7: a polynomial on [0, 1) times a power of two made from its bits."""
    x = max(x, _f32(-126.0))
    whole = np.floor(x)
    part = x - whole
    y = _f32(1.8775767e-3)
    y = y * part + _f32(8.9893397e-3)
    y = y * part + _f32(5.5826318e-2)
    y = y * part + _f32(2.4015361e-1)
    y = y * part + _f32(6.9315308e-1)
    y = y * part + _f32(9.9999994e-1)
    return y * as_float((np.int32(whole) + np.int32(127)) << np.int32(23))


@_inlined
def _load(address: Any, stride: Any, count: Any, width: Any, into: Any, pitch: Any, like: Any, size: Any) -> None:
    """Up to four rows of `width` elements of `size` bytes, `pitch` floats apart; missing rows are zeros."""
    for t in range(4):
        base = t * pitch
        if t < count:
            for line in range(0, width * size, 64):
                prefetch(address + (t + AHEAD) * stride + line)
            row = carray(memory(address + t * stride), (width,), like)
            for i in range(width):
                into[base + i] = widen(row[i])
        else:
            for i in range(width):
                into[base + i] = _f32(0)


@_inlined
def _score(query: Any, rows: Any, scores: Any, d: Any, group: Any) -> None:
    """Scores of four keys for each query head of the group."""
    for g in range(group):
        s0, s1, s2, s3 = _f32(0), _f32(0), _f32(0), _f32(0)
        for i in range(d):
            x = query[g * d + i]
            s0 += x * rows[i]
            s1 += x * rows[d + i]
            s2 += x * rows[2 * d + i]
            s3 += x * rows[3 * d + i]
        at = g * CHUNK
        scores[at], scores[at + 1], scores[at + 2], scores[at + 3] = s0, s1, s2, s3


@_inlined
def _softmax(scores: Any, count: Any) -> Any:
    """Turn scores (base 2) into weights in place; returns their maximum and sum."""
    top = _LOWEST
    for t in range(count):
        top = max(top, scores[t])
    total = _f32(0)
    for t in range(count):
        weight = _exp2(scores[t] - top)
        scores[t] = weight
        total += weight
    for t in range(count, (count + 3) // 4 * 4):
        scores[t] = _f32(0)
    return top, total


@_inlined
def _gather(weights: Any, rows: Any, sums: Any, width: Any, group: Any) -> None:
    """Add four weighted rows to each query head's sums."""
    for g in range(group):
        at, base = g * CHUNK, g * width
        w0, w1, w2, w3 = weights[at], weights[at + 1], weights[at + 2], weights[at + 3]
        for i in range(width):
            sums[base + i] += w0 * rows[i] + w1 * rows[width + i] + w2 * rows[2 * width + i] + w3 * rows[3 * width + i]


@_inlined
def _combine(parts: Any, num: Any, step: Any, width: Any, sums: Any) -> Any:
    """Sums of one query head over all its chunks, into sums [width]; returns what to divide them by."""
    top = _LOWEST
    for c in range(num):
        top = max(top, parts[c * step])
    total = _f32(0)
    for i in range(width):
        sums[i] = _f32(0)
    for c in range(num):
        base = c * step
        weight = _exp2(parts[base] - top)
        total += weight * parts[base + 1]
        for i in range(width):
            sums[i] += weight * parts[base + 2 + i]
    return total


@cache
def compiled(dtype: torch.dtype, head_dim: int, group: int, low: int) -> Any:
    """The C function for planes of `dtype`, `group` query heads a key head and low-rank rows of up to `low` columns.

    One function that closes over numbers alone: so numba's cache on disk finds it again.
    """
    like = STORED[dtype]
    half = dtype == torch.bfloat16
    size = dtype.itemsize
    d = head_dim
    wide = d + low

    @numba.cfunc(types.void(types.voidptr), cache=True)
    def entry(data: Any) -> None:
        step = carray(data, (16,), np.int64)
        heads, rank, layer = step[HEADS], step[RANK], step[LAYER]
        width = 2 + d + rank
        pieces = carray(memory(step[PIECES]), (1 << 32, PIECE), np.int64)
        chunks = carray(memory(step[CHUNKS]), (1 << 32, MEMBER + MEMBERS * SPAN), np.int64)
        table = carray(memory(step[ROWS]), (1 << 32, 5), np.int64)
        parts = carray(memory(step[PARTS]), (1 << 40,), np.float32)
        ups = carray(memory(step[UPS]), (1 << 32, step[LAYERS]), np.int64)
        scale = as_float(np.int32(step[SCALE]))
        query = np.empty(MEMBERS * group * d, np.float32)
        rows = np.zeros(4 * wide, np.float32)
        scores = np.empty(MEMBERS * group * CHUNK, np.float32)
        sums = np.empty(MEMBERS * group * wide, np.float32)
        span = group * width
        while True:
            task = fetch_add(address_of(data), 1)
            if task >= step[TASKS]:
                break
            chunk, head = chunks[task // heads], task % heads
            first, count = chunk[FIRST], chunk[COUNT]
            both = chunk[MEMBER + SPAN + OF] != NOBODY
            members = 2 if both else 1
            for m in range(members):
                place = (table[chunk[MEMBER + m * SPAN + OF], AT] * heads + head) * group * d
                asked = carray(memory(step[QUERY] + place * size), (group * d,), like)
                for i in range(group * d):
                    query[m * group * d + i] = widen(asked[i]) * scale
            piece = pieces[chunk[MEMBER + RUN]]
            k = piece[0] + piece[1] * layer + piece[2] * first + head * d * size
            for t in range(0, count, 4):
                _load(k + t * piece[2], piece[2], count - t, d, rows, d, like, size)
                if both:
                    _score(query, rows, scores[t:], d, 2 * group)
                else:
                    _score(query, rows, scores[t:], d, group)
            for m in range(members):
                part = parts[(chunk[MEMBER + m * SPAN + PART] * heads + head) * span :]
                for g in range(group):
                    part[g * width], part[g * width + 1] = _softmax(scores[(m * group + g) * CHUNK :], count)
            for i in range(members * group * wide):
                sums[i] = _f32(0)
            v = piece[3] + piece[4] * layer + piece[5] * first + head * d * size
            for t in range(0, count, 4):
                _load(v + t * piece[5], piece[5], count - t, d, rows, wide, like, size)
                for m in range(members):
                    ranked = chunk[MEMBER + m * SPAN + RANKED]
                    if ranked:
                        own = pieces[chunk[MEMBER + m * SPAN + RUN]]
                        lr = own[6] + own[7] * layer + own[8] * (first + t)
                        if ranked == 8:  # the usual ranks, as constants
                            _load(lr, own[8], count - t, 8, rows[d:], wide, like, size)
                        elif ranked == 16:
                            _load(lr, own[8], count - t, 16, rows[d:], wide, like, size)
                        else:
                            _load(lr, own[8], count - t, ranked, rows[d:], wide, like, size)
                    _gather(scores[m * group * CHUNK + t :], rows, sums[m * group * wide :], wide, group)
            for m in range(members):
                member = chunk[MEMBER + m * SPAN :]
                number, ranked = member[OF], member[RANKED]
                row = table[number]
                part = parts[(member[PART] * heads + head) * span :]
                for g in range(group):
                    added = part[g * width + 2 :]
                    for i in range(d + ranked):
                        added[i] = sums[(m * group + g) * wide + i]
                    for i in range(d + ranked, d + rank):
                        added[i] = _f32(0)
                left = step[LEFT] + (number * heads + head) * 8
                if fetch_add(left, -1) == 1:
                    fetch_add(left, row[NUM])  # ready for the next layer
                    rank_up = row[RANK_UP]
                    up = carray(memory(ups[row[UP], layer] if rank_up else step[UPS]), (rank_up, heads, d), np.float32)
                    place = (row[AT] * heads + head) * group * d
                    out = carray(memory(step[OUT] + place * size), (group * d,), like)
                    begin = (row[PART0] * heads + head) * span
                    for g in range(group):
                        total = _combine(parts[begin + g * width :], row[NUM], heads * span, width - 2, rows)
                        for r in range(rank_up):
                            y = rows[d + r]
                            for i in range(d):
                                rows[i] += y * up[r, head, i]
                        for i in range(d):
                            y = rows[i] / total
                            if half:  # round to nearest, ties to even
                                bits = np.int64(as_bits(y)) & 0xFFFFFFFF
                                out[g * d + i] = np.uint16((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16)
                            else:
                                out[g * d + i] = y

    return entry
