"""(b) What the device reaches on a plain copy and a plain matmul, and what the small kernels reach."""

from typing import Any

import torch

from agentrt_kernels.kv_append import triton as kv_append
from agentrt_kernels.kv_append.reference import Target
from agentrt_kernels.lora_shrink_expand import triton as lora_shrink_expand
from agentrt_kernels.lora_shrink_expand.reference import Span, Weights
from agentrt_kernels.lora_shrink_expand.triton import Terms
from agentrt_kernels.lr_project import triton as lr_project
from agentrt_kernels.lr_project.reference import Deposit
from agentrt_kernels.tables import upload
from benchmarks.gpu_stages.setup import Report, Setup

ADAPTERS = 3


def run(setup: Setup, report: Report) -> None:
    report.add("rates", "copy", lambda: copy_rate(setup))
    report.add("rates", "matmul", lambda: _matmul(setup))
    for rows in (1, setup.batches[-1], setup.prefill_rows):
        report.add("rates", f"kv_append {rows} rows", lambda rows=rows: _append(setup, rows))
        report.add("rates", f"lr_project {rows} rows", lambda rows=rows: _project(setup, rows))
        report.add("rates", f"lora_shrink_expand {rows} rows", lambda rows=rows: _adapt(setup, rows))


def copy_rate(setup: Setup) -> dict[str, Any]:
    """Bytes read and written by a copy that no cache holds."""
    size = 1 << (12 if setup.smoke else 30)
    source = torch.empty(size, dtype=torch.uint8, device=setup.device)
    target = torch.empty_like(source)
    return _rate(setup.seconds(lambda: target.copy_(source)), bytes_moved=2 * size)


def _matmul(setup: Setup) -> dict[str, Any]:
    n = 64 if setup.smoke else 8192
    a, b = (torch.randn(n, n, device=setup.device).to(setup.dtype) for _ in range(2))
    return _rate(setup.seconds(lambda: a @ b), operations=2 * n**3)


def _append(setup: Setup, rows: int) -> dict[str, Any]:
    shape = (rows, setup.kv_heads, setup.head_dim)
    k, v = (torch.randn(shape, device=setup.device).to(setup.dtype) for _ in range(2))
    into = torch.empty(2, *shape, dtype=setup.dtype, device=setup.device)
    where = torch.tensor([(into[0].data_ptr(), into[1].data_ptr())], device=setup.device)
    (pieces,) = upload([kv_append.table([Target(0, rows, 0, 0)])], setup.device)
    seconds = setup.seconds(lambda: kv_append.append(k, v, pieces, where, into[0]))
    return _rate(seconds, bytes_moved=4 * k.nbytes)


def _project(setup: Setup, rows: int) -> dict[str, Any]:
    d_in, r = setup.model["hidden_size"], setup.rank
    x = torch.randn(rows, d_in, device=setup.device).to(setup.dtype)
    down = torch.randn(d_in, ADAPTERS * r, device=setup.device).to(setup.dtype)
    into = torch.empty(ADAPTERS, rows, r, dtype=setup.dtype, device=setup.device)
    deposits = [Deposit(0, rows, {a: [Target(0, rows, a, 0)] for a in range(ADAPTERS)})]
    tables = [lr_project.table(deposits, ADAPTERS), lr_project.column_table((r,) * ADAPTERS)]
    pieces, columns = upload(tables, setup.device)
    where = torch.tensor([(each.data_ptr(), r) for each in into], device=setup.device)
    seconds = setup.seconds(
        lambda: lr_project.project(x, down, pieces, columns, where, setup.dtype, few_rows=rows <= 16)
    )
    plain = setup.seconds(lambda: x @ down)
    moved = x.nbytes + down.nbytes + into.nbytes
    return {**_rate(seconds, bytes_moved=moved, operations=2 * x.numel() * down.shape[1]), "torch_product_s": plain}


def _adapt(setup: Setup, rows: int) -> dict[str, Any]:
    """As many adapters as rows or ADAPTERS, mixed."""
    d_in, r = setup.model["hidden_size"], setup.rank
    x = torch.randn(rows, d_in, device=setup.device).to(setup.dtype)
    out = torch.randn(rows, d_in, device=setup.device).to(setup.dtype)
    weights = [
        Weights(*(torch.randn(size, device=setup.device).to(setup.dtype) for size in ((d_in, r), (r, d_in))))
        for _ in range(ADAPTERS)
    ]
    step = -(-rows // ADAPTERS)
    spans = [Span(low, min(low + step, rows), index) for index, low in enumerate(range(0, rows, step))]
    (pieces,) = upload([lora_shrink_expand.table(spans)], setup.device)
    terms = Terms.of(weights, setup.device)
    scratch = torch.empty(terms.scratch_size(rows), device=setup.device)
    seconds = setup.seconds(
        lambda: lora_shrink_expand.shrink_expand(x, out, pieces, terms, scratch, few_rows=step <= 16)
    )
    plain = setup.seconds(lambda: out.add_(x @ weights[0].down @ weights[0].up))
    moved = x.nbytes + 2 * out.nbytes + len(spans) * 2 * d_in * r * x.element_size()
    return {**_rate(seconds, bytes_moved=moved), "torch_one_adapter_s": plain}


def _rate(seconds: float, *, bytes_moved: int = 0, operations: int = 0) -> dict[str, Any]:
    rate: dict[str, Any] = {"seconds": seconds}
    if bytes_moved:
        rate["gb_per_s"] = bytes_moved / seconds / 1e9
    if operations:
        rate["tflop_per_s"] = operations / seconds / 1e12
    return rate
