"""lr_project: every adapter's column where it belongs, masked columns untouched, within the kernels' error bound."""

import itertools

import pytest
import torch

from agentrt_kernels.kv_append.reference import Target
from agentrt_kernels.lr_project import reference, triton
from agentrt_kernels.lr_project.reference import Deposit
from agentrt_kernels.tables import upload
from tests.kernels.bounds import assert_within

RANKS = (5, 8, 33)
DEPOSITS = [
    Deposit(0, 70, {0: [Target(0, 70, 0, 2)], 1: [Target(0, 9, 1, 50), Target(9, 70, 2, 0)], 2: [Target(0, 70, 3, 1)]}),
    Deposit(70, 71, {1: [Target(70, 71, 1, 3)]}),  # only its own column
    Deposit(72, 80, {0: [Target(72, 80, 0, 80)], 2: [Target(72, 80, 3, 90)]}),  # nothing for row 71, nor for adapter 1
]
SEGMENTS = ((0, 100), (1, 60), (1, 70), (2, 120))  # adapter, rows


def segments(dtype):
    return [torch.full((n, 2, RANKS[a]), float("nan"), dtype=dtype)[:, 1] for a, n in SEGMENTS]


def launch(x, down, ranks, deposits, into):
    pieces, columns = upload([triton.table(deposits, len(ranks)), triton.column_table(ranks)], "cpu")
    addresses = torch.tensor([(rows.data_ptr(), rows.stride(0)) for rows in into])
    triton.project(x, down, pieces, columns, addresses, into[0].dtype)


def columns_of(into, deposits):
    """(row of x, adapter) -> written column."""
    found = {}
    for deposit in deposits:
        for adapter, targets in deposit.targets.items():
            for start, end, segment, row in targets:
                found |= {(start + i, adapter): into[segment][row + i] for i in range(end - start)}
    return found


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("write", [reference.lr_project, launch])
def test_columns_equal_the_product_in_fp64(write, dtype):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(80, 201, generator=generator).to(dtype)
    down = torch.randn(201, sum(RANKS), generator=generator).to(dtype)
    into = segments(dtype)
    write(x, down, RANKS, DEPOSITS, into)
    edges = list(itertools.accumulate(RANKS, initial=0))
    truth, stock = x.double() @ down.double(), x @ down
    written = columns_of(into, DEPOSITS)
    for adapter in range(len(RANKS)):
        rows = [row for row, a in written if a == adapter]
        span = slice(edges[adapter], edges[adapter + 1])
        got = torch.stack([written[row, adapter] for row in rows])
        assert_within(got, truth[rows, span], stock[rows, span])
    assert sum(int((~rows.isnan()).all(1).sum()) for rows in into) == len(written)  # and no other slot


@pytest.mark.parametrize("write", [reference.lr_project, launch])
def test_columns_may_be_fp32_beside_a_half_precision_model(write):
    x, down = torch.randn(80, 64).half(), torch.randn(64, sum(RANKS)).half()
    into = segments(torch.float32)
    write(x, down, RANKS, DEPOSITS, into)
    got = into[0][2:72]
    assert_within(got, x[:70].double() @ down[:, :5].double(), (x @ down)[:70, :5])


def test_the_launch_names_bad_arguments_too():
    into = segments(torch.float32)
    with pytest.raises(ValueError, match=r"ranks\[0\]: rank 0"):
        launch(torch.randn(80, 64), torch.randn(64, 46), (0, 8, 38), DEPOSITS, into)
    with pytest.raises(ValueError, match="down: dtype"):
        launch(torch.randn(80, 64), torch.randn(64, 46).half(), RANKS, DEPOSITS, into)
    with pytest.raises(ValueError, match=r"down: shape \(63, 46\), expected \(64, 46\)"):
        launch(torch.randn(80, 64), torch.randn(63, 46), RANKS, DEPOSITS, into)
    with pytest.raises(ValueError, match=r"down: shape \(64, 45\), expected \(64, 46\)"):
        launch(torch.randn(80, 64), torch.randn(64, 45), RANKS, DEPOSITS, into)
    with pytest.raises(ValueError, match=r"x: dtype torch\.float64 is not supported"):
        launch(torch.randn(80, 64).double(), torch.randn(64, 46), RANKS, DEPOSITS, into)
    with pytest.raises(ValueError, match=r"into: dtype torch\.bfloat16 does not go with x's torch.float32"):
        launch(torch.randn(80, 64), torch.randn(64, 46), RANKS, DEPOSITS, segments(torch.bfloat16))
    with pytest.raises(ValueError, match="x, down: rows must be contiguous"):
        launch(torch.randn(64, 80).T, torch.randn(64, 46), RANKS, DEPOSITS, into)


@pytest.mark.parametrize(
    ("argument", "ranks", "deposits"),
    [
        ("ranks\\[0\\]: rank 0", (0, 8, 38), DEPOSITS),
        ("ranks\\[1\\]: rank 129", (5, 129, 33), DEPOSITS),
        ("down: shape", (5, 8, 32), DEPOSITS),
        ("do not continue", RANKS, [Deposit(0, 4, {0: [Target(1, 4, 0, 0)]})]),
        ("have no target", RANKS, [Deposit(0, 4, {0: [Target(0, 3, 0, 0)]})]),
        ("do not exist", RANKS, [Deposit(0, 4, {0: [Target(0, 4, 0, 97)]})]),
        ("has rank 8", RANKS, [Deposit(0, 4, {0: [Target(0, 4, 1, 0)]})]),
    ],
)
def test_bad_arguments_are_named(argument, ranks, deposits):
    with pytest.raises(ValueError, match=argument):
        reference.lr_project(torch.randn(80, 64), torch.randn(64, 46), ranks, deposits, segments(torch.float32))
