"""Launches the Triton kernels of `lora_attention` for one layer of a planned step. Imports triton: import it late."""

from functools import cache
from typing import Any

import torch

from agentrt_kernels.lora_attention.addresses import Addresses
from agentrt_kernels.lora_attention.packed import check_tensors
from agentrt_kernels.lora_attention.plan import Plan
from agentrt_kernels.lora_attention.triton import attend_kernel, combine_kernel
from agentrt_kernels.machine import block, element, upcasts

LOG2E = 1.4426950408889634


class Workspace:
    """Scratch for split keys, kept between launches; it only grows."""

    def __init__(self, device: torch.device | str) -> None:
        self.whole = torch.empty(0, dtype=torch.float32, device=device)

    def take(self, *sizes: int) -> tuple[torch.Tensor, ...]:
        """Uninitialised fp32 vectors of these sizes."""
        total = sum(sizes)
        if total > len(self.whole):
            self.whole = self.whole.new_empty(2 * total)
        return torch.split(self.whole[:total], list(sizes))


def attend_planned(
    q: torch.Tensor,
    plan: Plan,
    addresses: Addresses,
    layer: int,
    workspace: Workspace,
    *,
    scale: float,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """What `packed.attend` computes, for a plan made of the same step; the host waits for nothing.

    q [rows, H, d], the last dimension contiguous; returns `out`, [rows, H, d] contiguous.
    """
    like = addresses.caches[layer]
    kv_heads, d = like.k[0].shape[1:]
    num_rows, heads = q.shape[:2]
    if q.stride(2) != 1:
        raise ValueError("q: the last dimension must be contiguous")
    check_tensors(q, like)
    if out is None:
        out = torch.empty(num_rows, heads, d, dtype=q.dtype, device=q.device)
    elif out.shape != q.shape or out.dtype != q.dtype or not out.is_contiguous():
        raise ValueError(f"out: contiguous {q.dtype} {tuple(q.shape)} expected")
    low = like.lr if plan.adapted else ()
    low_k = like.lrk if plan.adapted else ()
    block_d = block(d)
    block_r = block(max(up.shape[0] for up in like.up)) if low else 0
    block_kr = block(max(up.shape[0] for up in like.key_up)) if low_k else 0
    group, m = heads // kv_heads, plan.blocks.m
    cells = plan.num_parts * kv_heads * m
    part, part_low, part_lse = workspace.take(cells * block_d, cells * block_r, cells)
    cos, sin = like.rotary or (addresses.kv, addresses.kv)
    up_type = element(like.up[0].dtype) if low else None
    lr_dtype = (low or low_k or like.k)[0].dtype
    shared: dict[str, Any] = {
        "KV_HEADS": kv_heads,
        "GROUP": group,
        "D": d,
        "BLOCK_M": m,
        "BLOCK_D": block_d,
        "BLOCK_R": block_r,
    }
    shared |= {"UP_TYPE": up_type, "UPCAST": upcasts(q.dtype), "num_warps": plan.blocks.num_warps}
    attend_kernel[(len(plan.work), kv_heads)](
        q,
        plan.positions,
        out,
        plan.work,
        plan.runs,
        addresses.kv[layer],
        addresses.lr[layer],
        addresses.lrk[layer],
        addresses.up[layer],
        addresses.key_up[layer],
        cos,
        sin,
        part,
        part_low,
        part_lse,
        q.stride(0),
        q.stride(1),
        scale * LOG2E,
        plan.window or 0,
        RANK=_uniform(tuple(up.shape[0] for up in like.up)),
        KEY_RANK=_uniform(tuple(up.shape[0] for up in like.key_up)),
        BLOCK_N=plan.blocks.n,
        BLOCK_KR=block_kr,
        LR_TYPE=element(lr_dtype),
        KEY_UP_TYPE=element(like.key_up[0].dtype) if low_k else None,
        ROTATE=like.rotary is not None,
        WINDOW=plan.window is not None,
        ALIGN=addresses.align,
        LR_ALIGN=addresses.lr_align,
        num_stages=plan.blocks.num_stages,
        **shared,
    )
    if len(plan.tiles):
        grid = (len(plan.tiles), kv_heads)
        combine_kernel[grid](out, plan.tiles, addresses.up[layer], part, part_low, part_lse, **shared)
    return out


@cache
def _uniform(ranks: tuple[int, ...]) -> int:
    """The rank, where all are the same; else 0."""
    return ranks[0] if len(set(ranks)) == 1 else 0
