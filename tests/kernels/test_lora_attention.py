"""The reference kernel against attention written out in fp64, over blocks, windows, groups, ranks and dtypes."""

import itertools

import pytest
import torch
from torch.nn import functional as F

from agentrt_kernels.lora_attention import Block, lora_attention, penalty
from tests.kernels.bounds import assert_within


def full(q, q_start, k, v, lr, lr_start, up, window, dtype):
    """Queries, keys and values in full, each [H, .., d] of `dtype`, and who is hidden from whom [n, T]."""
    q, k, v = q.to(dtype), k.to(dtype), v.to(dtype)
    if lr is not None:
        v = v.clone()
        v[lr_start : lr_start + len(lr)] += torch.einsum("tr,rhd->thd", lr.to(dtype), up.to(dtype))
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    rows = torch.arange(q_start, q_start + len(q))[:, None]
    keys = torch.arange(len(k))[None]
    hidden = (keys > rows) | ((keys <= rows - window) if window else torch.zeros(1, 1, dtype=torch.bool))
    return (*(each.transpose(0, 1) for each in (q, k, v)), hidden)


def dense(*what, scale):
    """softmax(q kᵀ scale)(v + lr up) in fp64 with full tensors."""
    q, k, v, hidden = full(*what, torch.float64)
    scores = (q @ k.mT * scale).masked_fill(hidden, float("-inf"))
    return (scores.softmax(-1) @ v).transpose(0, 1)


def stock(*what, scale):
    """PyTorch's own attention over expanded values, all in the queries' dtype."""
    q, k, v, hidden = full(*what, what[0].dtype)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=~hidden, scale=scale).transpose(0, 1)


def assert_close(out, *what, scale, rows=slice(None)):
    """Within the kernels' bound; `what` describes the attention, of which `rows` were computed."""
    assert out.dtype == what[0].dtype
    assert_within(out, dense(*what, scale=scale)[rows], stock(*what, scale=scale)[rows])


def cut(length, pieces, generator):
    edges = sorted({0, length, *torch.randint(1, max(length, 2), (pieces - 1,), generator=generator).tolist()})
    return list(itertools.pairwise(edges))


def wide_rows(lr, d):
    """lr as the cache stores it: rows inside a wider buffer whose other elements are poison."""
    buffer = torch.full((len(lr), lr.shape[1] + d), float("nan"), dtype=lr.dtype)
    buffer[:, : lr.shape[1]] = lr
    return buffer[:, : lr.shape[1]], buffer[:, :d]


CASES = [
    # n, prefix, H, Hkv, d, r, window, pieces
    (1, 0, 6, 2, 8, 4, None, 1),
    (1, 129, 9, 3, 64, 8, None, 1),
    (1, 130, 4, 4, 16, 1, None, 4),
    (1, 61, 8, 1, 32, 13, 7, 3),
    (3, 50, 6, 2, 8, 4, None, 2),
    (5, 0, 9, 3, 64, 8, None, 1),
    (7, 33, 9, 3, 64, 3, 11, 3),
    (37, 0, 6, 2, 8, 4, None, 1),
    (37, 64, 6, 2, 8, 4, None, 3),
    (37, 64, 6, 2, 8, 4, 9, 5),
    (21, 40, 8, 2, 128, 16, 64, 2),
    (2, 40, 4, 2, 16, 24, None, 2),  # rank above head_dim
]


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("ranked", ["none", "all", "tail"])
def test_equals_the_definition_in_fp64(case, dtype, ranked):
    n, prefix, heads, kv_heads, d, r, window, pieces = case
    generator = torch.Generator().manual_seed(CASES.index(case))
    total = prefix + n
    q = torch.randn(n, heads, d, generator=generator).to(dtype)
    k = torch.randn(total, kv_heads, d, generator=generator).to(dtype)
    v = torch.randn(total, kv_heads, d, generator=generator).to(dtype)
    up = torch.randn(r, kv_heads, d, generator=generator).to(dtype)
    start = {"none": total, "all": 0, "tail": total // 3}[ranked]
    lr = torch.randn(total - start, r, generator=generator).to(dtype)
    rows, wide = wide_rows(lr, d)
    edges = {edge for pair in cut(total, pieces, generator) for edge in pair} | {start}
    blocks = []
    for a, b in itertools.pairwise(sorted(edges)):
        term = (rows[a - start : b - start], wide[a - start : b - start]) if a >= start else (None, None)
        blocks.append(Block(a, k[a:b], v[a:b], *term))
    ranks = ranked != "none"
    out = lora_attention(q, prefix, blocks, up if ranks else None, scale=d**-0.5, window=window)
    assert_close(out, q, prefix, k, v, lr if ranks else None, start, up, window, scale=d**-0.5)


@pytest.mark.parametrize("total", [511, 512, 513, 1500])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("ranked", [True, False])
def test_one_query_over_long_keys_of_three_heads_on_two_threads(total, dtype, ranked):
    """Short keys are read once a key head, long ones once a query head."""
    generator = torch.Generator().manual_seed(total)
    q = torch.randn(1, 9, 64, generator=generator).to(dtype)
    k, v = (torch.randn(total, 3, 64, generator=generator).to(dtype) for _ in range(2))
    up = torch.randn(8, 3, 64, generator=generator)
    lr, wide = wide_rows(torch.randn(total, 8, generator=generator).to(dtype), 64)
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        block = Block(0, k, v, lr, wide) if ranked else Block(0, k, v)
        out = lora_attention(q, total - 1, [block], up if ranked else None, scale=0.125)
    finally:
        torch.set_num_threads(threads)
    assert_close(out, q, total - 1, k, v, lr if ranked else None, 0, up, None, scale=0.125)


@pytest.mark.parametrize("window", [None, 11])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("queries", [[57], [60, 61, 62, 63, 64], [3, 4, 9, 30, 31, 64]], ids=["one", "row", "skip"])
def test_blocks_with_masks_hold_any_positions_and_may_hide_keys(queries, dtype, window):
    """Some rows lie in a block of their own, in any order; poison stands where they would be."""
    generator = torch.Generator().manual_seed(len(queries))
    total, heads, kv_heads, d = 65, 6, 2, 8
    q = torch.randn(total, heads, d, generator=generator).to(dtype)
    k, v = (torch.randn(total, kv_heads, d, generator=generator).to(dtype) for _ in range(2))
    moved = torch.randperm(40, generator=generator)[:17] + 5
    poisoned = k.clone()
    poisoned[moved] = 1e4

    def block(keys, rows, hidden=()):
        behind = torch.tensor(queries)[:, None] - keys
        unseen = (behind < 0) | (behind >= (window or total)) | torch.isin(keys, torch.tensor(hidden))
        mask = torch.zeros(unseen.shape, dtype=dtype).masked_fill(unseen, penalty(dtype))
        return Block(int(keys.min()), rows[keys], v[keys], mask=mask)

    blocks = [
        block(torch.arange(50), poisoned, moved.tolist()),
        block(moved, k),
        block(torch.arange(50, total), k),
    ]
    out = lora_attention(q[queries], queries[0], blocks, scale=d**-0.5, window=window)
    assert_close(out, q, 0, k, v, None, 0, None, window, scale=d**-0.5, rows=queries)


def test_decode_allocates_nothing_the_size_of_the_keys():
    total, kv_heads, d, r = 4096, 3, 64, 8
    k = torch.randn(total, kv_heads, d).bfloat16()
    lr, wide = wide_rows(torch.randn(total, r).bfloat16(), d)
    q, up = torch.randn(1, 9, d).bfloat16(), torch.randn(r, kv_heads, d).bfloat16()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        lora_attention(q, total - 1, [Block(0, k, k, lr, wide)], up, scale=0.125)
    largest = max(event.self_cpu_memory_usage for event in profile.events())
    assert 0 < largest < total * r  # bytes


@pytest.mark.parametrize(
    ("argument", "change"),
    [
        (r"q: expected \[rows, heads, head_dim\]", lambda q, block, up: (q[0], [block], up)),
        ("q: 5 heads do not go with 2 of k", lambda q, block, up: (q[:, :5], [block], up)),
        ("blocks: none", lambda q, block, up: (q, [], up)),
        ("up: shape .0, 2, 8.", lambda q, block, up: (q, [block], up[:0])),
        ("up: shape .4, 1, 8.", lambda q, block, up: (q, [block], up[:, :1])),
        (r"blocks\[0\]\.k: shape", lambda q, block, up: (q, [block._replace(k=block.k[..., :7])], up)),
        (r"blocks\[1\]\.k: shape", lambda q, block, up: (q, [block, block._replace(k=block.k[:, :1])], up)),
        (r"blocks\[1\]\.v: shape", lambda q, block, up: (q, [block, block._replace(v=block.v[1:])], up)),
        (r"blocks\[0\]: dtypes torch.float16 of k", lambda q, block, up: (q, [block._replace(k=block.k.half())], up)),
        (
            r"blocks\[0\]: dtypes .* torch.float16 of v",
            lambda q, block, up: (q, [block._replace(v=block.v.half())], up),
        ),
        (r"blocks\[0\]: dtypes .* q's torch.float16", lambda q, block, up: (q.half(), [block], up)),
        (r"blocks\[0\]\.lr: shape .9, 4., expected .9, 3.", lambda q, block, up: (q, [block], up[:3])),
        (r"blocks\[0\]\.lr: shape", lambda q, block, up: (q, [block._replace(lr=block.lr[1:])], up)),
        (r"blocks\[0\]\.mask: shape", lambda q, block, up: (q, [block._replace(lr=None, mask=torch.zeros(1, 8))], up)),
        (
            r"blocks\[0\]\.mask: .* values in full",
            lambda q, block, up: (q, [block._replace(mask=torch.zeros(1, 9))], up),
        ),
    ],
)
def test_arguments_that_do_not_fit_are_named(argument, change):
    k, v = torch.randn(2, 9, 2, 8)
    q, blocks, up = change(torch.randn(1, 6, 8), Block(0, k, v, torch.randn(9, 4)), torch.randn(4, 2, 8))
    with pytest.raises(ValueError, match=argument):
        lora_attention(q, 8, blocks, up, scale=1.0)
