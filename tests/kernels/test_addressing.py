"""What a table may hold: slots beyond 2^31 numbers from a segment's start, and rows of zeros that stand for nothing."""

import pytest
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
from agentrt_kernels.tables import Table, upload
from agentrt_kernels.testing import Shape, Wish, exact, random_step, stock
from tests.kernels.bounds import assert_within

FAR = 1 << 27
"""Slots. A segment of so many is pretended: its address lies that far before the memory there is."""
NAN = float("nan")


def host_plan(step, **how):
    group, kv_heads = step.q.shape[1] // step.cache.k[0].shape[1], step.cache.k[0].shape[1]
    tallest = max(each.end - each.start for each in step.passes) * group
    blocks = choose_blocks(tallest, group, step.q.shape[2], step.q.dtype)
    return make_plan(step.positions, step.passes, blocks, group=group, kv_heads=kv_heads, window=step.window, **how)


def attend(step, plan, addresses):
    workspace = Workspace("cpu")
    workspace.take(1 << 16)[0].fill_(NAN)
    out = torch.full(step.q.shape, NAN, dtype=step.q.dtype)
    return attend_planned(step.q, plan.upload("cpu"), addresses, 0, workspace, scale=step.scale, out=out)


def test_attention_reads_slots_far_from_a_segments_start():
    step = random_step([Wish(70, list(range(60, 70)), 0), Wish(33, [32], 1)], Shape(group=2, kv_heads=2, d=16))
    near = Addresses.of([step.cache])
    row = 2 * 16 * 4
    assert FAR * 2 * 16 > 2**31
    near.kv.sub_(FAR * row)
    near.lr[:, :, 0] -= FAR * near.lr[:, :, 1] * 4
    passes = []
    for each in step.passes:
        runs = tuple(
            run._replace(kv=run.kv._replace(row=run.kv.row + FAR), lr=run.lr and run.lr._replace(row=run.lr.row + FAR))
            for run in each.runs
        )
        passes.append(each._replace(runs=runs))
    step.passes = passes
    assert_within(attend(step, host_plan(step), near), exact(step), stock(step))


def test_rows_are_written_to_slots_far_from_a_segments_start():
    k, v = torch.randn(20, 3, 16), torch.randn(20, 3, 16)
    into = torch.full((2, 40, 3, 16), NAN)
    where = torch.tensor([(into[0].data_ptr(), into[1].data_ptr())]) - FAR * 3 * 16 * 4
    (pieces,) = upload([kv_append.table([Target(0, 20, 0, FAR + 7)])], "cpu")
    kv_append.append(k, v, pieces, where, into[0])
    assert torch.equal(into[0, 7:27], k)
    assert torch.equal(into[1, 7:27], v)
    assert torch.cat((into[:, :7], into[:, 27:]), 1).isnan().all()


def test_columns_are_written_to_slots_far_from_a_segments_start():
    x, down = torch.randn(20, 48), torch.randn(48, 8)
    into = torch.full((40, 8), NAN)
    far = FAR * 4  # rows are narrow here
    deposits = [Deposit(0, 20, {0: [Target(0, 20, 0, far + 7)]})]
    pieces, columns = upload([lr_project.table(deposits, 1), lr_project.column_table((8,))], "cpu")
    lr_project.project(x, down, pieces, columns, torch.tensor([(into.data_ptr() - far * 32, 8)]), torch.float32)
    assert_within(into[7:27], x.double() @ down.double(), x @ down)
    assert torch.cat((into[:7], into[27:])).isnan().all()


@pytest.mark.parametrize("adapter", [0, None])
@pytest.mark.parametrize("how", [{}, {"programs": 10_000, "min_split_keys": 1}], ids=["whole", "split"])
def test_a_padded_plan_gives_the_same_bits(how, adapter):
    wishes = [Wish(70, [69], adapter), Wish(33, [32], None), Wish(150, [149], adapter, 40)]
    step = random_step(wishes, Shape(group=4, kv_heads=2, d=16))
    addresses, plan = Addresses.of([step.cache]), host_plan(step, **how)
    padded = plan.padded()
    sizes = [len(table.rows) for table in padded.tables]
    assert all(size & (size - 1) == 0 for size in sizes)
    assert sum(sizes) > sum(len(table.rows) for table in plan.tables)
    assert bool(padded.num_parts) == bool(how)
    assert torch.equal(attend(step, padded, addresses), attend(step, plan, addresses))


def test_rows_of_zeros_in_the_other_tables_write_nothing():
    def rows(table):
        return upload([table.padded(8)], "cpu")[0]

    x, out = torch.randn(6, 48), torch.randn(6, 32)
    before = out.clone()
    weights = Weights(torch.randn(48, 4), torch.randn(4, 32))
    terms = Terms.of([weights], "cpu")
    scratch = torch.full((terms.scratch_size(6),), NAN)
    pieces = rows(lora_shrink_expand.table([Span(2, 4, 0)]))
    lora_shrink_expand.shrink_expand(x, out, pieces, terms, scratch, few_rows=True)
    before[2:4] += x[2:4] @ weights.down @ weights.up
    torch.testing.assert_close(out, before)

    into = torch.full((9, 2, 16), NAN)
    pieces = rows(kv_append.table([Target(2, 4, 0, 5)]))
    where = torch.tensor([(into.data_ptr(), into.data_ptr())])
    keys = torch.randn(6, 2, 16)
    kv_append.append(keys, keys, pieces, where, into)
    assert torch.equal(into[5:7], keys[2:4])
    assert torch.cat((into[:5], into[7:])).isnan().all()

    column = torch.full((9, 4), NAN)
    pieces = rows(lr_project.table([Deposit(2, 4, {0: [Target(2, 4, 0, 5)]})], 1))
    (columns,) = upload([lr_project.column_table((4,))], "cpu")
    where = torch.tensor([(column.data_ptr(), 4)])
    lr_project.project(x, weights.down, pieces, columns, where, torch.float32, few_rows=True)
    torch.testing.assert_close(column[5:7], x[2:4] @ weights.down)
    assert torch.cat((column[:5], column[7:])).isnan().all()


def test_an_empty_table_stays_empty():
    assert Table([], 3).padded(8) == Table([], 3)
    assert len(Table([(1,)] * 5, 1).padded().rows) == 8
    assert len(Table([(1,)] * 4, 1).padded().rows) == 4
