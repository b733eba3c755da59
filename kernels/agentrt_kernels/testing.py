"""For tests and benchmarks: random packed steps, what they give in fp64, and the one error bound of all kernels."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch.nn import functional as F

from agentrt_kernels.lora_attention.packed import Cache, Pass, Place, Run

NAN = float("nan")


class Wish(NamedTuple):
    """One pass: `keys` cached positions, rows at `queries`, and a low-rank part from position `ranked` on."""

    keys: int
    queries: list[int]
    adapter: int | None = None
    ranked: int = 0


class Dense(NamedTuple):
    """One pass's rows with full tensors, zeros where there is no low-rank part."""

    k: torch.Tensor
    v: torch.Tensor
    lr: torch.Tensor
    lrk: torch.Tensor


@dataclass
class Step:
    """A packed step and, pass by pass, its rows in order."""

    q: torch.Tensor
    positions: list[int]
    passes: list[Pass]
    cache: Cache
    scale: float
    window: int | None
    dense: list[Dense]


class Shape(NamedTuple):
    """Sizes of a step; `key_rank` 0: no adapter on keys. `low_dtype` None: low-rank parts have the step's dtype."""

    group: int = 1
    kv_heads: int = 2
    d: int = 16
    ranks: tuple[int, ...] = (4, 4)
    key_rank: int = 0
    rotate: bool = True
    window: int | None = None
    low_dtype: torch.dtype | None = None


def random_step(
    wishes: Sequence[Wish],
    shape: Shape,
    *,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
    seed: int = 0,
) -> Step:
    """Runs of random lengths, scattered over two segments in random order; every slot that is not used is NaN."""
    generator = torch.Generator().manual_seed(seed)

    def randn(*size: int) -> torch.Tensor:
        return torch.randn(*size, generator=generator)

    low_dtype, heads, d = shape.low_dtype or dtype, shape.kv_heads, shape.d
    slots = 2 * sum(wish.keys for wish in wishes) + 20 * len(wishes)
    k, v = (torch.full((2, slots, heads, d), NAN, dtype=dtype) for _ in range(2))
    ranks, key_ranks = shape.ranks, [shape.key_rank] * len(shape.ranks) if shape.key_rank else []
    lr = [torch.full((2 * slots, 3, rank), NAN, dtype=low_dtype)[:, 1] for rank in ranks]  # strided, as planes are
    lrk = [torch.full((2 * slots, rank), NAN, dtype=low_dtype) for rank in key_ranks]
    free = [0, slots // 2, 0, slots // 2]  # four places that grow: two in each segment
    step = Step(torch.empty(0), [], [], Cache([], []), d**-0.5, shape.window, [])
    for keys, queries, adapter, ranked in wishes:
        edges = sorted({0, keys, ranked, *torch.randint(1, keys + 1, (3,), generator=generator).tolist()})
        of = adapter or 0
        full = Dense(
            torch.zeros(keys, heads, d, dtype=dtype),
            torch.zeros(keys, heads, d, dtype=dtype),
            torch.zeros(keys, ranks[of], dtype=low_dtype),
            torch.zeros(keys, shape.key_rank, dtype=low_dtype),
        )
        runs = []
        for low, high in itertools.pairwise(edges):
            place = int(torch.randint(0, 4, (1,), generator=generator))
            kv, size = Place(place // 2, free[place]), high - low
            free[place] += size + int(torch.randint(0, 3, (1,), generator=generator))
            rows = slice(kv.row, kv.row + size)
            full.k[low:high] = k[kv.segment, rows] = randn(size, heads, d).to(dtype)
            full.v[low:high] = v[kv.segment, rows] = randn(size, heads, d).to(dtype)
            column = None
            if adapter is not None and low >= ranked:
                column = Place(adapter, kv.segment * slots + kv.row)
                rows = slice(column.row, column.row + size)
                full.lr[low:high] = lr[adapter][rows] = randn(size, ranks[adapter]).to(low_dtype)
                if lrk:
                    full.lrk[low:high] = lrk[adapter][rows] = randn(size, shape.key_rank).to(low_dtype)
            runs.append(Run(low, size, kv, column, column if lrk else None))
        start = len(step.positions)
        step.passes.append(Pass(start, start + len(queries), tuple(runs), adapter))
        step.dense.append(Dense._make(each.to(device) for each in full))
        step.positions += queries
    assert max(free[0], free[2]) <= slots // 2
    up = [randn(rank, heads, d).to(low_dtype) for rank in ranks]
    key_up = [randn(rank, heads, d).to(low_dtype) for rank in key_ranks]
    parts = [[each.to(device) for each in part] for part in (k, v, lr, up, lrk, key_up)]
    rotary = None
    if key_ranks and shape.rotate:
        angles = torch.arange(max(wish.keys for wish in wishes))[:, None] * 0.3 ** torch.arange(d // 2)
        rotary = (_twice(angles.cos()).to(device), _twice(angles.sin()).to(device))
    step.cache = Cache._make([*parts, rotary])
    step.q = randn(len(step.positions), heads * shape.group, d).to(device, dtype)
    return step


def exact(step: Step) -> torch.Tensor:
    """The definition, in fp64."""
    return torch.cat([_attend(step, index, torch.float64) for index in range(len(step.passes))])


def stock(step: Step) -> torch.Tensor:
    """PyTorch's own attention over expanded keys and values, all in the step's dtype."""
    return torch.cat([_attend(step, index, step.q.dtype) for index in range(len(step.passes))])


class Error(NamedTuple):
    """Largest absolute error, and the most it may be."""

    error: float
    bound: float

    @property
    def ok(self) -> bool:
        return self.error <= self.bound  # false for NaN


def measure_error(got: torch.Tensor, truth: torch.Tensor, plain: torch.Tensor) -> Error:
    """At most twice PyTorch's own error in this dtype, above a floor of four roundings of the largest value.

    `truth` is fp64; `plain` is what PyTorch gives in its low precision.
    """
    floor = 4 * torch.finfo(plain.dtype).eps / 2 * truth.abs().max()  # a rounding is off by half of eps at most
    bound = 2 * (plain.double() - truth).abs().max() + floor
    return Error((got.double() - truth).abs().max().item(), bound.item())


def _attend(step: Step, index: int, dtype: torch.dtype) -> torch.Tensor:
    each = step.passes[index]
    k, v, lr, lrk = (part.to(dtype) for part in step.dense[index])
    q = step.q[each.start : each.end].to(dtype)
    if each.adapter is not None:
        v = v + torch.einsum("tr,rhd->thd", lr, step.cache.up[each.adapter].to(dtype))
        if step.cache.key_up:
            term = torch.einsum("tr,rhd->thd", lrk, step.cache.key_up[each.adapter].to(dtype))
            if step.cache.rotary:
                cos, sin = (table[: len(k), None].to(dtype) for table in step.cache.rotary)
                low, high = term.chunk(2, -1)
                term = term * cos + torch.cat((-high, low), -1) * sin
            k = k + term
    group = q.shape[1] // k.shape[1]
    k, v = (rows.repeat_interleave(group, 1).transpose(0, 1) for rows in (k, v))
    at = torch.tensor(step.positions[each.start : each.end], device=q.device)[:, None]
    keys = torch.arange(k.shape[1], device=q.device)[None]
    seen = (keys <= at) & (keys > at - (step.window or k.shape[1] + 1))
    return F.scaled_dot_product_attention(q.transpose(0, 1), k, v, attn_mask=seen, scale=step.scale).transpose(0, 1)


def _twice(halves: torch.Tensor) -> torch.Tensor:
    return torch.cat((halves, halves), 1).float().contiguous()
