"""The packed step of lora_attention, torch and Triton (interpreted), against attention written out in fp64."""

import itertools

import pytest
import torch

from agentrt_kernels.lora_attention import packed
from agentrt_kernels.lora_attention.addresses import Addresses
from agentrt_kernels.lora_attention.launch import Workspace, attend_planned
from agentrt_kernels.lora_attention.plan import choose_blocks, make_plan
from agentrt_kernels.testing import Shape, Wish, exact, random_step, stock
from tests.kernels.bounds import assert_within

DTYPES = [torch.float32, torch.float16, torch.bfloat16]


def make(passes, dtype=torch.float32, seed=0, **shape):
    return random_step([Wish(*each) for each in passes], Shape(**shape), dtype=dtype, seed=seed)


def assert_close(got, step):
    assert_within(got, exact(step), stock(step))


def run_torch(step):
    packed.check_tables(step.positions, step.passes, step.cache)
    return packed.attend(step.q, step.positions, step.passes, step.cache, scale=step.scale, window=step.window)


def run_triton(step, *, programs=1, min_split_keys=512):
    group, kv_heads = step.q.shape[1] // step.cache.k[0].shape[1], step.cache.k[0].shape[1]
    tallest = max(each.end - each.start for each in step.passes) * group
    key_rank = max((up.shape[0] for up in step.cache.key_up), default=0)
    plan = make_plan(
        step.positions,
        step.passes,
        choose_blocks(tallest, group, step.q.shape[2], step.q.dtype, key_rank),
        group=group,
        kv_heads=kv_heads,
        window=step.window,
        programs=programs,
        min_split_keys=min_split_keys,
    ).upload("cpu")
    out = torch.full(step.q.shape, float("nan"), dtype=step.q.dtype)
    workspace = Workspace("cpu")
    workspace.take(1 << 16)[0].fill_(float("nan"))
    return attend_planned(step.q, plan, Addresses.of([step.cache]), 0, workspace, scale=step.scale, out=out)


def rows(start, end):
    return list(range(start, end))


RAGGED = [
    # keys, queries, adapter, first position with a column
    (70, rows(63, 70), 0, 0),  # some new rows over a prefix
    (41, [40], 1, 10),  # decode, the column begins late
    (33, rows(0, 33), None, 0),  # a whole prompt without an adapter
    (57, [2, 17, 18, 40, 56], 1, 0),  # selected rows
    (1, [0], 0, 0),  # the first token
]
DECODE = [(150, [149], 0, 0), (3, [2], None, 0), (90, [89], 1, 31)]

GRID = [
    # step, group, kv_heads, d, ranks, window
    (RAGGED, 1, 2, 16, (4, 4), None),
    (RAGGED, 3, 1, 64, (8, 8), None),
    (RAGGED, 4, 2, 24, (1, 13), None),
    (RAGGED, 8, 1, 80, (24, 3), 19),
    (RAGGED, 1, 1, 256, (8, 8), 7),
    (RAGGED, 3, 2, 128, (128, 16), None),
    (DECODE, 1, 3, 16, (4, 4), None),
    (DECODE, 3, 3, 64, (8, 8), 23),
    (DECODE, 4, 2, 128, (16, 16), None),
    (DECODE, 8, 1, 96, (5, 100), None),
    (DECODE, 4, 1, 256, (64, 64), None),
]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", range(len(GRID)))
def test_torch_step_equals_the_definition(case, dtype):
    passes, group, kv_heads, d, ranks, window = GRID[case]
    step = make(passes, group=group, kv_heads=kv_heads, d=d, ranks=ranks, window=window, dtype=dtype, seed=case)
    assert_close(run_torch(step), step)


@pytest.mark.parametrize("dtype", [*DTYPES[:-1], pytest.param(DTYPES[-1], marks=pytest.mark.slow)], ids=str)
@pytest.mark.parametrize("case", range(len(GRID)))
def test_triton_step_equals_the_definition(case, dtype):
    passes, group, kv_heads, d, ranks, window = GRID[case]
    step = make(passes, group=group, kv_heads=kv_heads, d=d, ranks=ranks, window=window, dtype=dtype, seed=case)
    assert_close(run_triton(step), step)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("window", [None, 45])
def test_split_keys_are_put_together_as_one_attention(dtype, window):
    """Some rows see nothing of some parts, some parts hold nothing of the column."""
    step = make(RAGGED + DECODE, group=3, d=24, ranks=(5, 9), window=window, dtype=dtype)
    assert_close(run_triton(step, programs=10_000, min_split_keys=1), step)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("rotate", [True, False])
@pytest.mark.parametrize("run", [run_torch, run_triton])
def test_a_key_term_is_rotated_by_the_keys_position(run, rotate, dtype):
    step = make(RAGGED, group=2, d=32, ranks=(4, 7), key_rank=5, rotate=rotate, dtype=dtype)
    assert_close(run(step), step)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("run", [run_torch, run_triton])
def test_keys_may_lie_apart_from_their_values(run, dtype):
    """Moved to a segment of their own, in reverse order; NaN is left in their place."""
    step = make(RAGGED, group=2, d=32, ranks=(4, 7), dtype=dtype)
    total = sum(run.size for each in step.passes for run in each.runs)
    apart = torch.full((total + 3, 2, 32), float("nan"), dtype=dtype)
    end, passes = total, []
    for each in step.passes:
        runs = []
        for one in each.runs:
            end -= one.size
            rows = step.cache.k[one.kv.segment][one.kv.row : one.kv.row + one.size]
            apart[end : end + one.size] = rows
            rows.fill_(float("nan"))
            runs.append(one._replace(keys=packed.Place(2, end)))
        passes.append(each._replace(runs=tuple(runs)))
    step.passes = passes
    # segments of keys have no values, none is read from there
    nothing = torch.full_like(apart, float("nan"))
    step.cache = step.cache._replace(k=[*step.cache.k, apart], v=[*step.cache.v, nothing])
    assert_close(run(step), step)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("run", [run_torch, run_triton])
def test_low_rank_rows_may_be_fp32_beside_half_precision_values(run, dtype):
    step = make(RAGGED, group=2, d=32, ranks=(4, 7), dtype=dtype, low_dtype=torch.float32)
    assert_close(run(step), step)


def test_no_adapter_anywhere():
    step = make([(50, [49], None, 0), (20, rows(10, 20), None, 0)], group=4, d=64)
    assert_close(run_triton(step), step)


def test_queries_may_lie_apart_in_memory():
    """transformers hands over [1, H, rows, d]."""
    step = make(RAGGED, group=2, d=32)
    step.q = step.q.transpose(0, 1).contiguous().transpose(0, 1)
    assert_close(run_triton(step), step)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(24))
def test_random_steps(seed):
    generator = torch.Generator().manual_seed(1000 + seed)

    def pick(options):
        return options[int(torch.randint(0, len(options), (1,), generator=generator))]

    passes = []
    for _ in range(pick([1, 2, 5])):
        keys = pick([1, 7, 64, 65, 130, 301])
        count = min(keys, pick([1, 2, 9, 40]))
        selected = sorted(torch.randperm(keys, generator=generator)[:count].tolist())
        queries = pick([rows(keys - count, keys), selected])
        passes.append((keys, queries, pick([None, 0, 1, 1]), pick([0, keys // 2])))
    step = make(
        passes,
        group=pick([1, 3, 4, 8]),
        kv_heads=pick([1, 2]),
        d=pick([16, 40, 64, 128, 256]),
        ranks=(pick([1, 8, 17]), pick([2, 8, 64, 128])),
        key_rank=pick([0, 0, 4]),
        window=pick([None, None, 1, 50]),
        dtype=pick(DTYPES),
        seed=seed,
    )
    assert_close(run_torch(step), step)
    assert_close(run_triton(step, programs=pick([1, 10_000]), min_split_keys=pick([32, 256])), step)


@pytest.mark.parametrize(
    ("argument", "broken"),
    [
        ("lr: rank 0", lambda c: c._replace(lr=[c.lr[0][:, :0]])),
        ("up: rank 129", lambda c: c._replace(up=[torch.zeros(129, 2, 16)])),
        ("k: dtype torch.float64", lambda c: c._replace(k=[x.double() for x in c.k], v=[x.double() for x in c.v])),
        ("v: dtype", lambda c: c._replace(v=[x.half() for x in c.v])),
        ("lr: dtype", lambda c: c._replace(lr=[x.half() for x in c.lr])),
        ("up: rows are", lambda c: c._replace(up=[torch.zeros(4, 2, 17)])),
        ("key_up:", lambda c: c._replace(lrk=[torch.zeros(9, 4)])),
        ("k: expected 3", lambda c: c._replace(k=[torch.zeros(9, 2)])),
    ],
)
def test_a_cache_that_cannot_be_read_is_refused_by_name(argument, broken):
    step = make(DECODE)
    with pytest.raises(ValueError, match=argument):
        packed.check_cache(broken(step.cache))


@pytest.mark.parametrize("d", [15, 257])
def test_a_head_dim_out_of_range_is_refused(d):
    step = make([(3, [2], None, 0)], d=d)
    for run in (run_torch, run_triton):
        with pytest.raises(ValueError, match=f"k: head_dim {d} is not supported"):
            run(step)


@pytest.mark.parametrize("run", [run_torch, run_triton])
def test_queries_that_differ_from_the_keys_are_refused(run):
    step = make(DECODE)
    q, step.q = step.q, step.q.half()
    with pytest.raises(ValueError, match="q: dtype"):
        run(step)
    step.q = torch.cat((q, q), 2)
    with pytest.raises(ValueError, match="q: 2 heads of 32"):
        run(step)


@pytest.mark.parametrize("spoil", [lambda out: out.half(), lambda out: out[1:], lambda out: out.mT.contiguous().mT])
def test_an_output_that_does_not_fit_the_queries_is_refused(spoil):
    step = make(DECODE)
    addresses, blocks = Addresses.of([step.cache]), choose_blocks(1, 1, 16, torch.float32)
    plan = make_plan(step.positions, step.passes, blocks, group=1, kv_heads=2).upload("cpu")
    with pytest.raises(ValueError, match="out: contiguous"):
        attend_planned(step.q, plan, addresses, 0, Workspace("cpu"), scale=1.0, out=spoil(torch.empty_like(step.q)))


@pytest.mark.parametrize(
    ("argument", "change"),
    [
        ("runs: kv segment 2", lambda run: run._replace(kv=packed.Place(2, 0))),
        ("runs: keys rows", lambda run: run._replace(keys=packed.Place(1, 10_000))),
        ("runs: kv rows", lambda run: run._replace(kv=packed.Place(0, 10_000))),
        ("runs: lr rows of rank 7, the adapter's is 4", lambda run: run._replace(lr=packed.Place(1, 0))),
        ("runs: lr rows", lambda run: run._replace(lr=packed.Place(0, -1))),
        ("runs: positions", lambda run: run._replace(position=1)),
        ("runs: keys end", lambda run: run._replace(size=run.size - 1)),
    ],
)
def test_tables_out_of_range_are_found(argument, change):
    step = make([(6, [5], 0, 0)], ranks=(4, 7))
    (only,) = step.passes
    runs = list(only.runs)
    runs[-1] = change(runs[-1])
    with pytest.raises(ValueError, match=argument):
        packed.check_tables(step.positions, [only._replace(runs=tuple(runs))], step.cache)


def test_long_programs_start_first_and_parts_cover_every_key():
    step = make(RAGGED, group=2)
    blocks = choose_blocks(66, 2, 16, torch.float16)
    plan = make_plan(step.positions, step.passes, blocks, group=2, kv_heads=2, programs=99, min_split_keys=1)
    plan = plan.upload("cpu")
    work = plan.work.tolist()
    lengths = [item[5] - item[4] for item in work]
    assert lengths == sorted(lengths, reverse=True)
    for row, count, _, first, last in plan.tiles.tolist():
        parts = sorted((item[4], item[5]) for item in work if first <= item[8] < last)
        assert all(a[1] == b[0] for a, b in itertools.pairwise(parts))
        assert parts[0][0] == 0
        assert parts[-1][1] == max(step.positions[row : row + count]) + 1


def test_a_pass_is_cut_alike_alone_and_in_company():
    """So the order of its sums, and with it every last bit of a result, does not depend on what else is in the step."""
    wishes = [(3000, [2999], 0), (5000, rows(4900, 5000), None), (700, [699], 1), (4000, rows(3990, 4000), 0)]
    step = make(wishes, group=4)

    def cuts(positions, passes):
        tallest = max(each.end - each.start for each in passes) * 4
        plan = make_plan(positions, passes, choose_blocks(tallest, 4, 16, torch.float16), group=4, kv_heads=2)
        plan = plan.upload("cpu")
        return [(row, count, low, high) for row, count, _, _, low, high, *_ in plan.work.tolist()]

    together = cuts(step.positions, step.passes)
    for each in step.passes:
        moved = each._replace(start=0, end=each.end - each.start)
        alone = cuts(step.positions[each.start : each.end], [moved])
        found = [(row - each.start, *rest) for row, *rest in together if each.start <= row < each.end]
        assert sorted(found) == sorted(alone)
    assert len(together) > len(step.passes)
