"""Reference of `lora_attention`: torch only, exact, and the path that CPUs run. The derivation is in README.md."""

from collections.abc import Sequence
from typing import NamedTuple

import torch

SPREAD_KEYS = 512
"""From this many keys on, work for every thread pays for reading the keys once a query head."""


class Block(NamedTuple):
    """Cached rows of positions `[start, start + T)`: keys, base values, and the low-rank part of the values.

    The values are v + lr @ up; without `lr` the low-rank part is zero here.
    """

    start: int
    k: torch.Tensor  # [T, Hkv, d]
    v: torch.Tensor  # [T, Hkv, d]
    lr: torch.Tensor | None = None  # [T, r]
    wide: torch.Tensor | None = None  # [T, d]: lr, then anything, NaN too; lets one fused attention call read lr
    mask: torch.Tensor | None = None  # [n or 1, T] added to scores, in q's dtype: who sees what, whatever the positions

    @property
    def end(self) -> int:
        return self.start + self.k.shape[0]


class _Partial(NamedTuple):
    """Attention of rows `[first_row, n)` over one block: outputs and log-sum-exp of the scores."""

    first_row: int
    out: torch.Tensor  # [Hkv, G, n', d]
    out_lr: torch.Tensor | None  # [Hkv, G, n', r]
    lse: torch.Tensor  # [Hkv, G, n'] fp32


def lora_attention(
    q: torch.Tensor,
    q_start: int,
    blocks: Sequence[Block],
    up: torch.Tensor | None = None,
    *,
    scale: float,
    window: int | None = None,
) -> torch.Tensor:
    """softmax(q kᵀ scale)(v + lr up) of queries at consecutive positions from `q_start`, causal.

    q [n, H, d]; `blocks` cover positions `[0, q_start + n)`; up [r, Hkv, d], scaling included, in any float dtype;
    `window`: a query sees its own and the `window - 1` positions before it. A block with a mask may hold any positions,
    also of queries that skip some, and values in full.
    Returns [n, H, d] in q's dtype. Raises ValueError naming what does not fit.
    """
    _check(q, blocks, up)
    n, heads, d = q.shape
    kv_heads = blocks[0].k.shape[1]
    if window is not None:
        blocks = _visible(blocks, q_start, window)
    if up is not None and _expands(q, kv_heads):
        blocks = _expand(blocks, up.to(q.dtype))
    fused = q.device.type == "cpu" and all(map(_fusable, blocks))
    if n == 1 and fused:
        return _decode(q, blocks, up, scale)
    grouped = q.view(n, kv_heads, heads // kv_heads, d).permute(1, 2, 0, 3)  # [Hkv, G, n, d]
    attend = _attend_fused if fused else _attend_plain
    partials = [
        attend(grouped, q_start, block, scale, window) if block.mask is None else _attend_masked(grouped, block, scale)
        for block in blocks
    ]
    out, out_lr = _merge(partials, n)
    if out_lr is not None and up is not None:
        flat = out_lr.reshape(kv_heads, -1, out_lr.shape[-1]).to(up.dtype)
        out = out + (flat @ up.transpose(0, 1)).view(out.shape)  # B once per query, not once per key
    return out.to(q.dtype).permute(2, 0, 1, 3).reshape(n, heads, d)


def _check(q: torch.Tensor, blocks: Sequence[Block], up: torch.Tensor | None) -> None:
    """Raises ValueError naming the argument. Runs in every layer of a step: it compares a few numbers, no elements."""
    if q.dim() != 3:
        raise ValueError(f"q: expected [rows, heads, head_dim], got shape {tuple(q.shape)}")
    if not blocks:
        raise ValueError("blocks: none, a query sees its own key at least")
    _, heads, d = q.shape
    kv_heads = blocks[0].k.shape[-2]
    if heads % kv_heads:
        raise ValueError(f"q: {heads} heads do not go with {kv_heads} of k")
    if up is not None and (up.dim() != 3 or not up.shape[0] or up.shape[1:] != (kv_heads, d)):
        raise ValueError(f"up: shape {tuple(up.shape)}, expected [rank from 1 on, {kv_heads}, {d}]")
    for index, (_, k, v, lr, _, mask) in enumerate(blocks):
        if k.dim() != 3 or k.shape[1:] != (kv_heads, d):
            raise ValueError(f"blocks[{index}].k: shape {tuple(k.shape)}, expected [keys, {kv_heads}, {d}]")
        if v.shape != k.shape:
            raise ValueError(f"blocks[{index}].v: shape {tuple(v.shape)} differs from k's {tuple(k.shape)}")
        if not q.dtype == k.dtype == v.dtype:
            raise ValueError(f"blocks[{index}]: dtypes {k.dtype} of k, {v.dtype} of v differ from q's {q.dtype}")
        if lr is not None and up is not None and lr.shape != (len(k), up.shape[0]):
            raise ValueError(f"blocks[{index}].lr: shape {tuple(lr.shape)}, expected {(len(k), up.shape[0])}")
        if mask is not None and (lr is not None or mask.shape[-1] != len(k)):
            raise ValueError(f"blocks[{index}].mask: shape {tuple(mask.shape)} over {len(k)} keys; values in full only")


def _expands(q: torch.Tensor, kv_heads: int) -> bool:
    """Whether making one layer's values in full costs less than reading its low-rank rows beside them.

    On a CPU it does from the second query on: reading them is a second attention call, which packs every key again.
    """
    n, heads, d = q.shape
    return n > 1 if q.device.type == "cpu" else n * heads >= kv_heads * d


def _fusable(block: Block) -> bool:
    """Half-precision flash attention packs its operands, which makes reading `wide` cheap; fp32 gains nothing."""
    if block.lr is None:
        return True
    fits = block.wide is not None and block.lr.shape[1] <= block.k.shape[2]
    return fits and block.lr.dtype == block.k.dtype != torch.float32


def _expand(blocks: Sequence[Block], up: torch.Tensor) -> list[Block]:
    """Add the low-rank part to the values: one layer's transient, worth it for many queries.

    Rows that are not dense are copied first: oneDNN's bf16 product reads past such a row where its length does not suit
    it, and what lies there may be NaN, which times its zero is NaN.
    """
    flat = up.flatten(1)
    expanded = []
    for block in blocks:
        v = block.v
        if block.lr is not None:
            v = torch.addmm(v.flatten(1), block.lr.to(flat.dtype).contiguous(), flat).view(v.shape)
        expanded.append(Block(block.start, block.k, v, mask=block.mask))
    return expanded


def _visible(blocks: Sequence[Block], q_start: int, window: int) -> list[Block]:
    """Drop keys that fall out of the first query's window."""
    first = q_start - window + 1
    kept = []
    for block in blocks:
        drop = max(0, first - block.start) if block.mask is None else 0
        if drop < len(block.k):
            rows = (part if part is None else part[drop:] for part in block[1:])
            kept.append(Block(block.start + drop, *rows) if drop else block)  # type: ignore[arg-type]
    return kept


def _mask(
    q_start: int, n: int, block: Block, window: int | None, dtype: torch.dtype
) -> tuple[int, torch.Tensor | None]:
    """First row that sees any key of the block, and an additive mask [n', T]; None where all is visible."""
    last = q_start + n - 1
    if block.end <= q_start + 1 and (window is None or block.start > last - window):
        return 0, None
    first_row = max(0, block.start - q_start)
    rows = torch.arange(q_start + first_row, q_start + n, device=block.k.device)[:, None]
    positions = torch.arange(block.start, block.end, device=block.k.device)[None]
    hidden = positions > rows
    if window is not None:
        hidden |= positions <= rows - window
    mask = torch.zeros(hidden.shape, dtype=dtype, device=hidden.device).masked_fill_(hidden, penalty(dtype))
    return first_row, mask


def _attend_fused(q: torch.Tensor, q_start: int, block: Block, scale: float, window: int | None) -> _Partial:
    """Several queries through torch's flash attention for CPUs; the block holds values in full."""
    kv_heads, group, n, d = q.shape
    square = block.start == q_start and block.end == q_start + n and (window is None or n <= window)
    first_row, mask = (0, None) if square else _mask(q_start, n, block, window, q.dtype)
    rows = q[:, :, first_row:]
    if mask is None and not square:
        rows = rows.reshape(1, kv_heads, group * n, d)  # every key visible: the group's heads are just more queries
        k, v = (x.transpose(0, 1)[None] for x in (block.k, block.v))
    else:
        k, v = (x.transpose(0, 1)[:, None].expand(kv_heads, group, -1, d) for x in (block.k, block.v))
    out, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        rows, k, v, 0.0, square, attn_mask=mask, scale=scale
    )
    shape = (kv_heads, group, n - first_row)
    return _Partial(first_row, out.reshape(*shape, d), None, lse.reshape(shape))


def _attend_masked(q: torch.Tensor, block: Block, scale: float) -> _Partial:
    """Over a block that comes with its own mask."""
    assert block.mask is not None
    kv_heads, group, n, d = q.shape
    if q.device.type != "cpu":
        return _attend_plain(q, 0, block, scale, None)
    k, v = (x.transpose(0, 1)[:, None].expand(kv_heads, group, -1, d) for x in (block.k, block.v))
    mask = block.mask.expand(n, -1)
    out, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, attn_mask=mask, scale=scale)
    return _Partial(0, out.view(q.shape), None, lse.reshape(kv_heads, group, n))


def _attend_plain(q: torch.Tensor, q_start: int, block: Block, scale: float, window: int | None) -> _Partial:
    """Matrix products and one softmax in fp32, on any device."""
    kv_heads, group, n, d = q.shape
    first_row, mask = (0, block.mask) if block.mask is not None else _mask(q_start, n, block, window, torch.float32)
    rows = q[:, :, first_row:].reshape(kv_heads, -1, d)
    scores = ((rows.float() * scale) @ block.k.permute(1, 2, 0).float()).view(kv_heads, group, n - first_row, -1)
    if mask is not None:
        scores += mask
    lse = scores.logsumexp(-1)
    probs = (scores - lse[..., None]).exp_().view(kv_heads, -1, len(block.k))
    shape = (kv_heads, group, n - first_row, -1)
    out = (probs.to(block.v.dtype) @ block.v.transpose(0, 1)).view(shape)
    out_lr = None if block.lr is None else (probs.to(block.lr.dtype) @ block.lr).view(shape)
    return _Partial(first_row, out, out_lr, lse)


def _decode(q: torch.Tensor, blocks: Sequence[Block], up: torch.Tensor | None, scale: float) -> torch.Tensor:
    """`_attend_fused` for one query, where every call counts: no masks but the blocks' own, few views."""
    reads = [_read_block(q, block, up is not None, scale) for block in blocks]
    outs, terms, lses = zip(*reads, strict=True)
    out, term = outs[0], terms[0]
    if len(reads) > 1:
        weights = torch.stack(lses).softmax(0).unsqueeze(-1)
        out = torch.stack(outs).mul(weights).sum(0)
        ranked = [index for index, each in enumerate(terms) if each is not None]
        if ranked:
            term = torch.stack([terms[index] for index in ranked]).mul(weights[ranked]).sum(0)
    if up is not None and term is not None:
        out = torch.bmm(term.to(up.dtype), up.transpose(0, 1)).add_(out)
    answer: torch.Tensor = out.to(q.dtype).view(q.shape)
    return answer


def _read_block(
    q: torch.Tensor, block: Block, ranked: bool, scale: float
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor]:
    """One query over one block: outputs [Hkv, G, d], low-rank outputs [Hkv, G, r], log-sum-exp [Hkv, G].

    Flash attention gives each thread whole (batch, head) units. The units are the key heads, a group's queries
    sharing each read of the keys; where that leaves threads idle and the keys are long, they are the query heads.
    """
    _, heads, d = q.shape
    keys, kv_heads = block.k.shape[:2]
    group = heads // kv_heads
    spread = keys >= SPREAD_KEYS and bool(kv_heads % torch.get_num_threads())
    rows = q.view((kv_heads, group, 1, d) if spread else (1, kv_heads, group, d))

    def units(x: torch.Tensor, head_stride: int) -> torch.Tensor:
        row = x.stride(0)
        if spread:
            return x.as_strided((kv_heads, group, keys, d), (head_stride, 0, row, 1))
        return x.as_strided((1, kv_heads, keys, d), (0, head_stride, row, 1))

    k = units(block.k, d)
    mask = None if block.mask is None else block.mask.expand(rows.shape[2], -1)
    flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    out: torch.Tensor
    lse: torch.Tensor
    out, lse = flash(rows, k, units(block.v, d), attn_mask=mask, scale=scale)
    term = None
    if ranked and block.lr is not None and block.wide is not None:
        term = flash(rows, k, units(block.wide, 0), scale=scale)[0].view(kv_heads, group, d)
        term = term[..., : block.lr.shape[1]]
    return out.view(kv_heads, group, d), term, lse.reshape(kv_heads, group)


def penalty(dtype: torch.dtype) -> float:
    """Hides a score: large but finite, so that a row that sees none of a block ends with weight zero, not NaN."""
    return -3e4 if dtype == torch.float16 else -1e30


def _merge(partials: Sequence[_Partial], n: int) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Combine blocks by their log-sum-exp: out = Σ exp(lse_b - lse) out_b, in fp32."""
    if len(partials) == 1:
        return partials[0].out, partials[0].out_lr
    first, second = partials[:2]
    if len(partials) == 2 and first.first_row == second.first_row == 0 and first.out_lr is second.out_lr is None:
        return torch.lerp(first.out.float(), second.out.float(), (second.lse - first.lse).sigmoid()[..., None]), None
    shape = (*partials[0].out.shape[:2], n)
    lses = partials[0].lse.new_full((len(partials), *shape), float("-inf"))
    for lse, partial in zip(lses, partials, strict=True):
        lse[..., partial.first_row :] = partial.lse
    weights = (lses - lses.logsumexp(0)).exp_()
    ranked = [p.out_lr for p in partials if p.out_lr is not None]
    out = weights.new_zeros(*shape, partials[0].out.shape[-1])
    out_lr = weights.new_zeros(*shape, ranked[0].shape[-1]) if ranked else None
    for weight, partial in zip(weights, partials, strict=True):
        rows = weight[..., partial.first_row :, None]
        out[..., partial.first_row :, :] += rows * partial.out
        if out_lr is not None and partial.out_lr is not None:
            out_lr[..., partial.first_row :, :] += rows * partial.out_lr
    return out, out_lr
