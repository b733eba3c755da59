"""A packed step of `lora_attention`: its records, its checks, and its torch implementation (pass by pass)."""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import torch

from agentrt_kernels.limits import check_dtype, check_head_dim, check_rank
from agentrt_kernels.lora_attention.reference import Block, lora_attention


class Place(NamedTuple):
    """Rows from `row` on of the tensor `segment` of a `Cache`'s list."""

    segment: int
    row: int


class Run(NamedTuple):
    """Keys at positions `[position, position + size)`, in consecutive rows from each place on.

    Without `lr` the values have no low-rank part here, without `lrk` the keys have none. With `keys` the keys lie
    there, and only the values at `kv`.
    """

    position: int
    size: int
    kv: Place
    lr: Place | None = None
    lrk: Place | None = None
    keys: Place | None = None


class Pass(NamedTuple):
    """Rows `[start, end)` of the packed queries and the runs they read, in order and without gaps.

    `adapter` counts in the cache's `up`; None reads the base keys and values only.
    """

    start: int
    end: int
    runs: tuple[Run, ...]
    adapter: int | None = None


class Cache(NamedTuple):
    """One layer's tensors: lists of segments, and of adapters' `scaling * B`.

    Values are v + lr @ up, keys k + rope(lrk @ key_up). The low-rank parts may be fp32 beside half-precision rows.
    """

    k: Sequence[torch.Tensor]  # [slots, Hkv, d] each, after RoPE
    v: Sequence[torch.Tensor]  # [slots, Hkv, d] each
    lr: Sequence[torch.Tensor] = ()  # [slots, r] each
    up: Sequence[torch.Tensor] = ()  # [r, Hkv, d] each
    lrk: Sequence[torch.Tensor] = ()  # [slots, rk] each
    key_up: Sequence[torch.Tensor] = ()  # [rk, Hkv, d] each
    rotary: tuple[torch.Tensor, torch.Tensor] | None = None
    """cos and sin, fp32 [positions, d] with equal halves; None: keys have no RoPE."""


def attend(
    q: torch.Tensor,
    positions: Sequence[int],
    passes: Sequence[Pass],
    cache: Cache,
    *,
    scale: float,
    window: int | None = None,
) -> torch.Tensor:
    """Attention of all passes, [rows, H, d]; q [rows, H, d], `positions` of all its rows.

    A row sees the keys of its pass at positions up to its own. Rows of a pass may be any rising selection.
    """
    check_cache(cache)
    check_tensors(q, cache)
    out = torch.empty_like(q, memory_format=torch.contiguous_format)
    for each in passes:
        blocks = [_block(run, each.adapter, cache) for run in each.runs]
        up = None if each.adapter is None or not cache.up else cache.up[each.adapter]
        for start, end in _consecutive(positions, each.start, each.end):
            seen = _until(blocks, positions[end - 1] + 1)
            out[start:end] = lora_attention(q[start:end], positions[start], seen, up, scale=scale, window=window)
    return out


def check_tensors(q: torch.Tensor, cache: Cache) -> None:
    """Raises ValueError naming the argument that no implementation takes."""
    _, heads, d = q.shape
    _, kv_heads, key_dim = cache.k[0].shape
    if d != key_dim or heads % kv_heads:
        raise ValueError(f"q: {heads} heads of {d} do not go with k's {kv_heads} of {key_dim}")
    if q.dtype != cache.k[0].dtype:
        raise ValueError(f"q: dtype {q.dtype} differs from k's {cache.k[0].dtype}")


def check_cache(cache: Cache) -> None:
    """Raises ValueError naming the part that no implementation takes."""
    for name in ("k", "v", "up", "key_up", "lr", "lrk"):
        dimensions = 2 if name in ("lr", "lrk") else 3
        for tensor in getattr(cache, name):
            if tensor.dim() != dimensions:
                raise ValueError(f"{name}: expected {dimensions} dimensions, got shape {tuple(tensor.shape)}")
    row, dtype = tuple(cache.k[0].shape[1:]), cache.k[0].dtype
    check_head_dim("k", row[1])
    check_dtype("k", dtype)
    for name in ("k", "v", "up", "key_up"):
        for tensor in getattr(cache, name):
            if tuple(tensor.shape[1:]) != row:
                raise ValueError(f"{name}: rows are {tuple(tensor.shape[1:])}, k's {row}")
    for name, axis in (("lr", 1), ("lrk", 1), ("up", 0), ("key_up", 0)):
        for tensor in getattr(cache, name):
            check_rank(name, tensor.shape[axis])
    for name in ("k", "v", "lr", "up", "lrk", "key_up"):
        for tensor in getattr(cache, name):
            if tensor.dtype != dtype and (name in ("k", "v") or tensor.dtype != torch.float32):
                raise ValueError(f"{name}: dtype {tensor.dtype} does not go with k's {dtype}")
    if bool(cache.lrk) != bool(cache.key_up):
        raise ValueError("key_up: must be given exactly where lrk is")


def check_tables(positions: Sequence[int], passes: Sequence[Pass], cache: Cache) -> None:
    """Raises ValueError naming the table that points outside its tensors. For debugging: reads every run."""
    for index, each in enumerate(passes):
        name = f"passes[{index}]"
        if not 0 <= each.start < each.end <= len(positions):
            raise ValueError(f"{name}.start, .end: [{each.start}, {each.end}) are no rows of {len(positions)}")
        if each.adapter is not None and not 0 <= each.adapter < max(len(cache.up), len(cache.key_up)):
            raise ValueError(f"{name}.adapter: {each.adapter} is not in up")
        rows = positions[each.start : each.end]
        if any(a >= b for a, b in itertools.pairwise(rows)):
            raise ValueError(f"positions: rows [{each.start}, {each.end}) of {name} do not rise")
        end = each.runs[0].position if each.runs else 0
        ranks = {} if each.adapter is None else _ranks(cache, each.adapter)
        for run in each.runs:
            if run.position != end or run.size < 1:
                raise ValueError(f"{name}.runs: positions [{run.position}, +{run.size}) do not continue at {end}")
            end += run.size
            for part, place in (("kv", run.kv), ("lr", run.lr), ("lrk", run.lrk), ("keys", run.keys)):
                tensors = cache.k if part in ("kv", "keys") else getattr(cache, part)
                if place is None:
                    continue
                if not 0 <= place.segment < len(tensors):
                    raise ValueError(f"{name}.runs: {part} segment {place.segment} of {len(tensors)}")
                if not 0 <= place.row <= len(tensors[place.segment]) - run.size:
                    raise ValueError(f"{name}.runs: {part} rows {place.row} + {run.size} are past the segment's end")
                rank = tensors[place.segment].shape[1]
                if ranks.get(part, rank) != rank:
                    raise ValueError(f"{name}.runs: {part} rows of rank {rank}, the adapter's is {ranks[part]}")
        if end <= rows[-1]:
            raise ValueError(f"{name}.runs: keys end at {end}, before the query at {rows[-1]}")


def _ranks(cache: Cache, adapter: int) -> dict[str, int]:
    """By part, how wide the adapter's low-rank rows are; without those it has no term for."""
    return {part: ups[adapter].shape[0] for part, ups in (("lr", cache.up), ("lrk", cache.key_up)) if ups}


def _block(run: Run, adapter: int | None, cache: Cache) -> Block:
    k = _rows(cache.k, run.keys or run.kv, run.size)
    v = _rows(cache.v, run.kv, run.size)
    if adapter is None:
        return Block(run.position, k, v)
    if run.lrk is not None:
        k = _with_key_term(k, _rows(cache.lrk, run.lrk, run.size), cache.key_up[adapter], cache.rotary, run.position)
    return Block(run.position, k, v, None if run.lr is None else _rows(cache.lr, run.lr, run.size))


def _rows(segments: Sequence[torch.Tensor], place: Place, size: int) -> torch.Tensor:
    return segments[place.segment][place.row : place.row + size]


def _with_key_term(
    k: torch.Tensor,
    lrk: torch.Tensor,
    key_up: torch.Tensor,
    rotary: tuple[torch.Tensor, torch.Tensor] | None,
    position: int,
) -> torch.Tensor:
    """k + rope(lrk @ key_up), of k's dtype; summed in fp32 and rounded once."""
    term = (lrk.float() @ key_up.flatten(1).float()).view(k.shape)
    if rotary is not None:
        cos, sin = (table[position : position + len(k), None].float() for table in rotary)
        low, high = term.chunk(2, -1)
        term = term * cos + torch.cat((-high, low), -1) * sin
    return (k.float() + term).to(k.dtype)


def _consecutive(positions: Sequence[int], start: int, end: int) -> list[tuple[int, int]]:
    """Cut rows [start, end) where their positions are not consecutive."""
    edges = [row for row in range(start + 1, end) if positions[row] != positions[row - 1] + 1]
    return list(itertools.pairwise([start, *edges, end]))


def _until(blocks: Sequence[Block], end: int) -> list[Block]:
    """The blocks of positions before `end`."""
    seen = []
    for block in blocks:
        if block.start < end:
            lr = None if block.lr is None else block.lr[: end - block.start]
            seen.append(Block(block.start, block.k[: end - block.start], block.v[: end - block.start], lr))
    return seen
