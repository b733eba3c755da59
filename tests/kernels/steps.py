"""Random packed steps for the attention tests, and what they must give, in fp64 with full tensors."""

from dataclasses import dataclass, field

import torch

from agentrt_kernels.lora_attention.packed import Cache, Pass, Place, Run
from tests.kernels.bounds import assert_within

NAN = float("nan")


@dataclass
class Step:
    q: torch.Tensor
    positions: list
    passes: list
    cache: Cache
    scale: float
    window: int | None = None
    dense: list = field(default_factory=list)
    """Per pass (k, v, lr, lrk) with full tensors, zeros where there is no low-rank part."""


def random_step(
    passes,  # (keys, query positions, adapter or None, first position with a low-rank part)
    *,
    group=1,
    kv_heads=2,
    d=16,
    ranks=(4, 4),
    key_rank=0,
    rotate=True,
    window=None,
    dtype=torch.float32,
    low_dtype=None,
    seed=0,
):
    """Runs of random lengths, scattered over two segments in random order; every slot that is not used is NaN."""
    generator = torch.Generator().manual_seed(seed)

    def randn(*shape):
        return torch.randn(*shape, generator=generator)

    low_dtype = low_dtype or dtype
    total = sum(keys for keys, *_ in passes)
    slots = 2 * total + 40
    k, v = (torch.full((2, slots, kv_heads, d), NAN, dtype=dtype) for _ in range(2))
    lr = [torch.full((2 * slots, 3, rank), NAN, dtype=low_dtype)[:, 1] for rank in ranks]  # rows with a stride of their own
    lrk = [torch.full((2 * slots, key_rank), NAN, dtype=low_dtype) for _ in ranks] if key_rank else []
    up = [randn(rank, kv_heads, d).to(low_dtype) for rank in ranks]
    key_up = [randn(key_rank, kv_heads, d).to(low_dtype) for _ in ranks] if key_rank else []
    free = [0, slots // 2 + 3, 0, slots // 2 + 3]  # four places that grow: two in each segment
    packed, dense, positions, start = [], [], [], 0
    for keys, queries, adapter, ranked in passes:
        edges = sorted({0, keys, ranked, *torch.randint(1, keys + 1, (3,), generator=generator).tolist()} - {keys + 1})
        runs, full = [], [torch.zeros(keys, kv_heads, d) for _ in range(2)]
        full += [torch.zeros(keys, ranks[adapter or 0]), torch.zeros(keys, key_rank)]
        for low, high in zip(edges, edges[1:], strict=False):
            place = int(torch.randint(0, 4, (1,), generator=generator))
            row, size = free[place], high - low
            free[place] += size + int(torch.randint(0, 3, (1,), generator=generator))
            kv = Place(place // 2, row)
            k[kv.segment, row : row + size] = randn(size, kv_heads, d).to(dtype)
            v[kv.segment, row : row + size] = randn(size, kv_heads, d).to(dtype)
            full[0][low:high], full[1][low:high] = (x[kv.segment, row : row + size] for x in (k, v))
            lr_place = lrk_place = None
            if adapter is not None and low >= ranked:
                lr_place = Place(adapter, kv.segment * slots + row)
                span = slice(lr_place.row, lr_place.row + size)
                full[2][low:high] = lr[adapter][span] = randn(size, ranks[adapter]).to(low_dtype)
                if key_rank:
                    lrk_place = lr_place
                    full[3][low:high] = lrk[adapter][span] = randn(size, key_rank).to(low_dtype)
            runs.append(Run(low, size, kv, lr_place, lrk_place))
        assert max(free[0], free[2]) <= slots // 2 + 3
        packed.append(Pass(start, start + len(queries), tuple(runs), adapter))
        dense.append(full)
        positions += queries
        start += len(queries)
    rotary = None
    if key_rank and rotate:
        angles = torch.arange(max(keys for keys, *_ in passes))[:, None] * 0.3 ** torch.arange(d // 2)
        rotary = tuple(torch.cat((x, x), 1).contiguous() for x in (angles.cos(), angles.sin()))
    cache = Cache(list(k), list(v), lr, up, lrk, key_up, rotary)
    q = randn(len(positions), kv_heads * group, d).to(dtype)
    return Step(q, positions, packed, cache, d**-0.5, window, dense)


def exact(step):
    """The definition, in fp64."""
    return torch.cat([_attend(step, index, torch.float64) for index in range(len(step.passes))])


def stock(step):
    """PyTorch's own attention over expanded keys and values, all in the step's dtype."""
    return torch.cat([_attend(step, index, step.q.dtype) for index in range(len(step.passes))])


def _attend(step, index, dtype):
    each, (k, v, lr, lrk) = step.passes[index], (x.to(dtype) for x in step.dense[index])
    q = step.q[each.start : each.end].to(dtype)
    if each.adapter is not None:
        v = v + torch.einsum("tr,rhd->thd", lr, step.cache.up[each.adapter].to(dtype))
        if step.cache.key_up:
            term = torch.einsum("tr,rhd->thd", lrk, step.cache.key_up[each.adapter].to(dtype))
            if step.cache.rotary:
                cos, sin = (x[: len(k), None].to(dtype) for x in step.cache.rotary)
                low, high = term.chunk(2, -1)
                term = term * cos + torch.cat((-high, low), -1) * sin
            k = k + term
    group = q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(group, 1).transpose(0, 1) for x in (k, v))
    rows = torch.tensor(step.positions[each.start : each.end])[:, None]
    keys = torch.arange(k.shape[1])[None]
    seen = (keys <= rows) & (keys > rows - (step.window or k.shape[1] + len(rows)))
    out = torch.nn.functional.scaled_dot_product_attention(
        q.transpose(0, 1), k, v, attn_mask=seen, scale=step.scale
    )
    return out.transpose(0, 1)


def assert_close(got, step):
    assert_within(got, exact(step), stock(step), step.q.dtype)
