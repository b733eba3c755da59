"""kv_append: rows arrive bit for bit, and nothing else is touched."""

import pytest
import torch

from agentrt_kernels.kv_append import reference, triton
from agentrt_kernels.kv_append.reference import Target
from agentrt_kernels.tables import upload

TARGETS = [Target(0, 21, 1, 3), Target(21, 22, 0, 0), Target(22, 40, 0, 9), Target(0, 5, 0, 30)]  # rows 0-4 twice


def segments(d, dtype):
    return [torch.full((n, 3, d), float("nan"), dtype=dtype) for n in (37, 41)]


def launch(k, v, targets, into_k, into_v):
    addresses = torch.tensor([(a.data_ptr(), b.data_ptr()) for a, b in zip(into_k, into_v, strict=True)])
    (pieces,) = upload([triton.table(targets)], "cpu")
    triton.append(k, v, pieces, addresses, into_k[0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("d", [16, 24, 128])
@pytest.mark.parametrize("write", [reference.kv_append, launch])
def test_rows_arrive_and_nothing_else_changes(write, d, dtype):
    k = torch.randn(3, 40, d).to(dtype).transpose(0, 1)  # as transformers has it: heads first in memory
    v = torch.randn(40, 3, d).to(dtype)
    into_k, into_v = segments(d, dtype), segments(d, dtype)
    write(k, v, TARGETS, into_k, into_v)
    for rows, into in ((k, into_k), (v, into_v)):
        want = segments(d, dtype)
        for start, end, segment, row in TARGETS:
            want[segment][row : row + end - start] = rows[start:end]
        assert all(torch.equal(a.view(torch.uint8), b.view(torch.uint8)) for a, b in zip(into, want, strict=True))


def test_a_segment_without_values_takes_keys_only_and_one_without_keys_values_only():
    k, v = torch.randn(40, 3, 16), torch.randn(40, 3, 16)
    (into_k, other_k), (other_v, into_v) = segments(16, k.dtype), segments(16, k.dtype)
    addresses = torch.tensor([(into_k.data_ptr(), 0), (0, into_v.data_ptr())])
    (pieces,) = upload([triton.table([Target(0, 20, 0, 5), Target(0, 20, 1, 9)])], "cpu")
    triton.append(k, v, pieces, addresses, into_k)
    assert torch.equal(into_k[5:25], k[:20])
    assert torch.equal(into_v[9:29], v[:20])
    assert torch.cat([into_k[:5], into_k[25:], other_k, other_v, into_v[:9], into_v[29:]]).isnan().all()


@pytest.mark.parametrize(
    ("argument", "target"),
    [
        ("no rows of 40", Target(39, 41, 0, 0)),
        ("of segment 2", Target(0, 1, 2, 0)),
        ("rows 36", Target(0, 2, 0, 36)),
        ("written twice", Target(1, 4, 0, 18)),
    ],
)
def test_targets_that_cannot_be_written_are_found(argument, target):
    k = torch.randn(40, 3, 16)
    with pytest.raises(ValueError, match=argument):
        reference.kv_append(
            k, k, [Target(0, 5, 0, 20), target], segments(16, torch.float32), segments(16, torch.float32)
        )


@pytest.mark.parametrize(
    ("argument", "change"),
    [
        ("k: head_dim 15 is not supported", lambda k, v, into: (k[..., :15], v[..., :15], into)),
        ("k: head_dim 272 is not supported", lambda k, v, into: (k.repeat(1, 1, 17), v.repeat(1, 1, 17), into)),
        ("k: dtype torch.float64 is not supported", lambda k, v, into: (k.double(), v.double(), into.double())),
        ("k: expected", lambda k, v, into: (k[0], v, into)),
        ("v: shape", lambda k, v, into: (k, v[1:], into)),
        ("v: dtype", lambda k, v, into: (k, v.half(), into)),
        (r"into(_k\[0\])?: rows are \(2, 16\), k's \(3, 16\)", lambda k, v, into: (k, v, into[:, :2])),
        (r"into(_k\[0\])?: dtype torch.float16 differs", lambda k, v, into: (k, v, into.half())),
    ],
)
@pytest.mark.parametrize("write", [reference.kv_append, launch])
def test_rows_that_do_not_fit_are_named(write, argument, change):
    k, v, into = change(torch.randn(40, 3, 16), torch.randn(40, 3, 16), torch.zeros(50, 3, 16))
    before = into.clone()
    with pytest.raises(ValueError, match=argument):
        write(k, v, [Target(0, 5, 0, 20)], [into], [into])
    assert torch.equal(into, before)


def test_segments_of_values_are_like_those_of_keys():
    k = torch.randn(40, 3, 16)
    with pytest.raises(ValueError, match="into_v: shapes and dtypes differ"):
        reference.kv_append(k, k, TARGETS, segments(16, k.dtype), segments(16, k.dtype)[::-1])
