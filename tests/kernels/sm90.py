"""A program: launches every kernel with real arguments, but only as far as machine code for sm_90; prints it as JSON.

No GPU is needed: Triton is given a driver that names the target, and launches stop after compilation.
"""

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime.driver import driver
from triton.runtime.jit import JITFunction

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
from agentrt_kernels.testing import Shape, Wish, random_step

TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
PREFILL, DECODE = Wish(300, list(range(200, 300)), 0), Wish(600, [599], 1)
STEPS: dict[str, tuple[list[Wish], Shape, torch.dtype]] = {
    "decode": ([DECODE], Shape(group=4, kv_heads=2, d=128, ranks=(8, 8)), torch.bfloat16),
    "prefill": ([PREFILL, DECODE], Shape(group=4, kv_heads=2, d=128, ranks=(8, 8)), torch.bfloat16),
    "window": ([PREFILL], Shape(group=1, kv_heads=3, d=80, ranks=(8, 8), window=64), torch.float16),
    "ranks": ([PREFILL, DECODE], Shape(group=3, kv_heads=1, d=64, ranks=(13, 128)), torch.bfloat16),
    "wide": ([PREFILL], Shape(group=8, kv_heads=1, d=256, ranks=(16, 16)), torch.bfloat16),
    "keys": ([PREFILL], Shape(group=4, kv_heads=2, d=128, ranks=(4, 4), key_rank=4), torch.bfloat16),
    "neutral": ([Wish(600, [599])], Shape(group=4, kv_heads=2, d=128), torch.bfloat16),
    "fp32": ([PREFILL], Shape(group=3, kv_heads=2, d=64, low_dtype=torch.float32), torch.float32),
    "fp32 columns": ([DECODE], Shape(group=4, kv_heads=2, d=128, low_dtype=torch.float32), torch.bfloat16),
}


class Target90:
    """What Triton asks of a driver before it launches."""

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)


compiled = {}
label = ""


def compile_only() -> None:
    driver.set_active(Target90())
    run = JITFunction.run

    def stop_early(self, *args, grid, warmup, **kwargs):
        kernel = run(self, *args, grid=grid, warmup=True, **kwargs)
        compiled[f"{label}: {self.__name__}"] = describe(kernel)

    JITFunction.run = stop_early


def describe(kernel) -> dict[str, int]:
    ptx = kernel.asm["ptx"]
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(kernel.asm["cubin"])
        file.flush()
        usage = [str(TOOLS / "cuobjdump"), "--dump-resource-usage", file.name]
        text = subprocess.run(usage, capture_output=True, text=True, check=True).stdout
    return {
        "shared_bytes": kernel.metadata.shared,
        "spilled_bytes": max(map(int, re.findall(r"STACK:(\d+)", text))),
        "wide_copies": len(re.findall(r"cp\.async\.c[ag]\.shared\.global.*0x10", ptx)),
        "products": len(re.findall(r"wgmma\.mma_async|mma\.sync", ptx)),
    }


def attention(wishes: Sequence[Wish], shape: Shape, dtype: torch.dtype) -> None:
    step = random_step(wishes, shape, dtype=dtype)
    tallest = max(len(wish.queries) for wish in wishes) * shape.group
    blocks = choose_blocks(tallest, shape.group, shape.d, dtype, shape.key_rank)
    plan = make_plan(
        step.positions, step.passes, blocks, group=shape.group, kv_heads=shape.kv_heads, window=shape.window
    ).upload("cpu")
    attend_planned(step.q, plan, Addresses.of([step.cache]), 0, Workspace("cpu"), scale=step.scale)


def small(dtype: torch.dtype, rows: int) -> None:
    k = torch.zeros(rows, 1, 128, dtype=dtype)
    where = torch.zeros(3, 2, dtype=torch.int64)
    (pieces,) = upload([kv_append.table([Target(0, rows, 0, 0)])], "cpu")
    kv_append.append(k, k, pieces, where, k)
    x, down = torch.zeros(rows, 256, dtype=dtype), torch.zeros(256, 24, dtype=dtype)
    deposits = [Deposit(0, rows, {0: [Target(0, rows, 0, 0)]})]
    pieces, columns = upload([lr_project.table(deposits, 3), lr_project.column_table((8, 8, 8))], "cpu")
    lr_project.project(x, down, pieces, columns, where, dtype, few_rows=rows <= 16)
    terms = Terms.of([Weights(torch.zeros(256, 8, dtype=dtype), torch.zeros(8, 256, dtype=dtype))], "cpu")
    (pieces,) = upload([lora_shrink_expand.table([Span(0, rows, 0)])], "cpu")
    scratch = torch.zeros(terms.scratch_size(rows))
    lora_shrink_expand.shrink_expand(x, x, pieces, terms, scratch, few_rows=rows <= 16)


if __name__ == "__main__":
    compile_only()
    for label, step in STEPS.items():  # noqa: B007 - read by stop_early
        attention(*step)
    for dtype in (torch.bfloat16, torch.float32):
        for rows in (1, 100):
            label = f"{dtype} {rows} rows"
            small(dtype, rows)
    json.dump(compiled, sys.stdout, indent=1)
