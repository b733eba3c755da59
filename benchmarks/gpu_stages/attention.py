"""(c) The price of LR: lora_attention with and without it, against torch's attention without it and expanded."""

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F
from torch.nn.attention.bias import causal_lower_right

from agentrt_kernels.lora_attention.addresses import Addresses
from agentrt_kernels.lora_attention.launch import Workspace, attend_planned
from agentrt_kernels.lora_attention.packed import Cache, Pass, Place, Run
from agentrt_kernels.lora_attention.plan import choose_blocks, make_plan
from benchmarks.gpu_stages.setup import Report, Setup


def run(setup: Setup, report: Report) -> None:
    for length in setup.lengths:
        for batch in setup.batches:
            report.add("attention", f"decode {batch} x {length}", lambda b=batch, n=length: measure(setup, b, 1, n))
        rows = setup.prefill_rows
        report.add("attention", f"prefill {rows} over {length}", lambda n=length, q=rows: measure(setup, 1, q, n))


def measure(setup: Setup, batch: int, rows: int, length: int) -> dict[str, Any]:
    """`batch` passes of `rows` queries each, the last positions of `length` keys of their own."""
    heads, kv_heads, d, r = setup.heads, setup.kv_heads, setup.head_dim, setup.rank

    def randn(*size: int) -> torch.Tensor:
        return torch.randn(*size, dtype=setup.dtype, device=setup.device)

    k, v = randn(batch, length, kv_heads, d), randn(batch, length, kv_heads, d)
    lr, up, q = randn(batch, length, r), randn(r, kv_heads, d) / r, randn(batch * rows, heads, d)
    cache = Cache([k.flatten(0, 1)], [v.flatten(0, 1)], [lr.flatten(0, 1)], [up])
    addresses, workspace, out = Addresses.of([cache]), Workspace(setup.device), torch.empty_like(q)
    scale = d**-0.5

    def ours(adapter: int | None) -> Callable[[], object]:
        passes = []
        for index in range(batch):
            place = Place(0, index * length)
            run = Run(0, length, place, None if adapter is None else place)
            passes.append(Pass(index * rows, (index + 1) * rows, (run,), adapter))
        positions = list(range(length - rows, length)) * batch
        group = heads // kv_heads
        blocks = choose_blocks(rows * group, group, d, setup.dtype)
        plan = make_plan(positions, passes, blocks, group=group, kv_heads=kv_heads).upload(setup.device)
        return lambda: attend_planned(q, plan, addresses, 0, workspace, scale=scale, out=out)

    queries = q.view(batch, rows, heads, d).transpose(1, 2)
    mask = None if rows == 1 else causal_lower_right(rows, length)

    def stock(values: torch.Tensor) -> torch.Tensor:
        keys, values = k.transpose(1, 2), values.transpose(1, 2)
        return F.scaled_dot_product_attention(queries, keys, values, attn_mask=mask, scale=scale, enable_gqa=True)

    def expanded() -> torch.Tensor:
        return stock(torch.addmm(v.view(-1, kv_heads * d), lr.view(-1, r), up.view(r, -1)).view_as(v))

    found: dict[str, Any] = {
        "with_lr_s": setup.seconds(ours(0)),
        "without_lr_s": setup.seconds(ours(None)),
        "host_s": setup.host_seconds(ours(0)),
    }
    for name, contender in (("sdpa_without_lr", lambda: stock(v)), ("expand_then_sdpa", expanded)):
        try:
            found[f"{name}_s"] = setup.seconds(contender)
            found[f"times_{name}"] = found["with_lr_s"] / found[f"{name}_s"]
        except RuntimeError as error:  # ours is measured even where torch has no kernel for the mask
            found[f"{name}_refused"] = str(error).splitlines()[0]
    seen = batch * sum(range(length - rows + 1, length + 1))
    return {
        **found,
        "price_of_lr": found["with_lr_s"] / found["without_lr_s"],
        "price_predicted_bytes": 1 + r / (2 * kv_heads * d),
        "price_predicted_operations": 1 + r / (2 * d),
        "gb_per_s": (k.nbytes + v.nbytes + lr.nbytes) / found["with_lr_s"] / 1e9,
        "tflop_per_s": 2 * heads * seen * (2 * d + r) / found["with_lr_s"] / 1e12,
    }
