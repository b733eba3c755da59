"""(a) Every kernel against fp64, on the device: error, and the bound of agentrt_kernels.testing."""

from typing import Any

import torch

from agentrt_kernels.kv_append import triton as kv_append
from agentrt_kernels.kv_append.reference import Target
from agentrt_kernels.lora_attention.addresses import Addresses
from agentrt_kernels.lora_attention.launch import Workspace, attend_planned
from agentrt_kernels.lora_attention.plan import choose_blocks, make_plan
from agentrt_kernels.lora_shrink_expand import triton as lora_shrink_expand
from agentrt_kernels.lora_shrink_expand.reference import Span, Weights
from agentrt_kernels.lora_shrink_expand.triton import Terms
from agentrt_kernels.lr_project import triton as lr_project
from agentrt_kernels.lr_project.reference import Deposit
from agentrt_kernels.tables import upload
from agentrt_kernels.testing import Error, Shape, Wish, exact, measure_error, random_step, stock
from benchmarks.gpu_stages.setup import Report, Setup

MIXED = [
    Wish(700, list(range(600, 700)), 0),
    Wish(350, list(range(350)), None),
    Wish(513, [2, 17, 130, 400, 512], 1, 60),
    Wish(1025, [1024], 1),
]
DECODE = [Wish(2000, [1999], 0), Wish(33, [32], None), Wish(901, [900], 1, 300)]
SHAPES = {
    "llama": Shape(group=4, kv_heads=2, d=128, ranks=(8, 8)),
    "ranks": Shape(group=3, kv_heads=1, d=64, ranks=(13, 128)),
    "window": Shape(group=1, kv_heads=2, d=96, ranks=(8, 8), window=300),
    "wide": Shape(group=8, kv_heads=1, d=256, ranks=(16, 16)),
    "keys": Shape(group=4, kv_heads=2, d=128, ranks=(4, 4), key_rank=4),
}


def run(setup: Setup, report: Report) -> None:
    dtypes = [torch.float32] if setup.smoke else [torch.bfloat16, torch.float16, torch.float32]
    steps = {"mixed": MIXED, "decode": DECODE}
    if setup.smoke:
        steps = {"mixed": [Wish(40, list(range(30, 40)), 0), Wish(20, [2, 19], None)], "decode": [Wish(300, [299], 1)]}
    for dtype in dtypes:
        name = str(dtype).removeprefix("torch.")
        for step, wishes in steps.items():
            for label, shape in SHAPES.items():
                if dtype != dtypes[0] and label != "llama":
                    continue  # each is another compilation, and takes seconds
                report.add(
                    "checks",
                    f"lora_attention {step} {label} {name}",
                    lambda wishes=wishes, shape=shape, dtype=dtype: _verdict(_attention(wishes, shape, dtype, setup)),
                )
        report.add("checks", f"kv_append {name}", lambda dtype=dtype: _append(dtype, setup))
        report.add("checks", f"lr_project {name}", lambda dtype=dtype: _verdict(_project(dtype, setup)))
        report.add("checks", f"lora_shrink_expand {name}", lambda dtype=dtype: _verdict(_adapt(dtype, setup)))
    report.result["checks_ok"] = all(each.get("ok", False) for each in report.result.get("checks", {}).values())


def _verdict(error: Error) -> dict[str, Any]:
    return {"error": error.error, "bound": error.bound, "ok": error.ok}


def _attention(wishes: list[Wish], shape: Shape, dtype: torch.dtype, setup: Setup) -> Error:
    step = random_step(wishes, shape, dtype=dtype, device=setup.device)
    tallest = max(len(wish.queries) for wish in wishes) * shape.group
    blocks = choose_blocks(tallest, shape.group, shape.d, dtype, shape.key_rank)
    plan = make_plan(
        step.positions,
        step.passes,
        blocks,
        group=shape.group,
        kv_heads=shape.kv_heads,
        window=shape.window,
    ).upload(setup.device)
    out = torch.full(step.q.shape, float("nan"), dtype=dtype, device=setup.device)
    attend_planned(step.q, plan, Addresses.of([step.cache]), 0, Workspace(setup.device), scale=step.scale, out=out)
    return measure_error(out, exact(step), stock(step))


def _append(dtype: torch.dtype, setup: Setup) -> dict[str, Any]:
    k, v = (torch.randn(40, 2, 64, device=setup.device).to(dtype) for _ in range(2))
    into = torch.full((2, 90, 2, 64), float("nan"), dtype=dtype, device=setup.device)
    (pieces,) = upload([kv_append.table([Target(0, 30, 0, 7), Target(30, 40, 0, 60)])], setup.device)
    where = torch.tensor([(into[0].data_ptr(), into[1].data_ptr())], device=setup.device)
    kv_append.append(k, v, pieces, where, into[0])
    same = all(torch.equal(torch.cat((to[7:37], to[60:70])), rows) for rows, to in ((k, into[0]), (v, into[1])))
    return {"ok": same and bool(into[:, 37:60].isnan().all())}


def _project(dtype: torch.dtype, setup: Setup) -> Error:
    x = torch.randn(80, 500, device=setup.device).to(dtype)
    down = torch.randn(500, 24, device=setup.device).to(dtype)
    into = [torch.full((100, rank), float("nan"), dtype=dtype, device=setup.device) for rank in (16, 8)]
    deposits = [Deposit(0, 80, {0: [Target(0, 80, 0, 20)], 1: [Target(0, 33, 1, 60), Target(33, 80, 1, 0)]})]
    pieces, columns = upload([lr_project.table(deposits, 2), lr_project.column_table((16, 8))], setup.device)
    where = torch.tensor([(rows.data_ptr(), rows.stride(0)) for rows in into], device=setup.device)
    lr_project.project(x, down, pieces, columns, where, dtype)
    got = torch.cat((into[0][20:], torch.cat((into[1][60:93], into[1][:47]))), 1)
    return measure_error(got, x.double() @ down.double(), x @ down)


def _adapt(dtype: torch.dtype, setup: Setup) -> Error:
    x = torch.randn(80, 1500, device=setup.device).to(dtype)
    base = torch.randn(80, 300, device=setup.device).to(dtype)
    made = ((torch.randn(1500, r) / 39, torch.randn(r, 300)) for r in (8, 13))
    weights = [Weights(down.to(setup.device, dtype), up.to(setup.device, dtype)) for down, up in made]
    spans = [Span(0, 70, 0), Span(70, 71, 1), Span(75, 80, 1)]
    truth, plain, out = base.double(), base.clone(), base.clone()
    for start, end, adapter in spans:
        down, up = weights[adapter]
        truth[start:end] += x[start:end].double() @ down.double() @ up.double()
        plain[start:end] += x[start:end] @ down @ up
    (pieces,) = upload([lora_shrink_expand.table(spans)], setup.device)
    terms = Terms.of(weights, setup.device)
    scratch = torch.empty(terms.scratch_size(80), device=setup.device)
    lora_shrink_expand.shrink_expand(x, out, pieces, terms, scratch)
    return measure_error(out, truth, plain)
