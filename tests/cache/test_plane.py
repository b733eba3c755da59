"""Planes: rows go where their slots say, reads are views, wide reads start at the row, bytes are counted."""

import pytest
import torch

from agentrt.cache.layout import Layout
from agentrt.cache.slots import Run
from agentrt.cache.store import CacheStore, Claim
from agentrt.errors import CacheFullError

LAYOUT = Layout(
    num_layers=3,
    num_kv_heads=2,
    head_dim=8,
    dtype=torch.float32,
    lr_dtype=torch.bfloat16,
    ranks={"plan": 4, "act": 0},
)


def store(**options):
    return CacheStore([LAYOUT.kv_spec(), LAYOUT.column_spec("plan")], segment_slots=8, poison=True, **options)


def test_row_bytes_follow_from_shapes_and_dtypes():
    assert LAYOUT.kv_spec().row_bytes == 2 * 3 * 2 * 8 * 4
    assert LAYOUT.column_spec("plan").row_bytes == 3 * 4 * 2
    assert LAYOUT.column_spec("plan").column == "plan"


def write(plane, part, layer, runs, rows):
    for run, chunk in zip(runs, rows.split([run.size for run in runs]), strict=True):
        plane.locate(run).read(part, layer).copy_(chunk)


@pytest.mark.parametrize(("plane", "part", "shape"), [("kv", "v", (2, 8)), ("lr:plan", "lr", (4,))])
def test_written_rows_are_read_back_over_segments(plane, part, shape):
    cache = store()
    (runs,) = cache.reserve([Claim(plane, 21)])
    assert len(runs) > 0
    rows = torch.arange(21 * torch.Size(shape).numel()).view(21, *shape)
    for layer in range(3):
        write(cache.planes[plane], part, layer, runs, rows + layer)
    for layer in range(3):
        back = torch.cat([cache.planes[plane].locate(run).read(part, layer) for run in runs])
        assert torch.equal(back, (rows + layer).to(back.dtype))


def test_a_read_is_a_view_at_a_fixed_address():
    cache = store()
    (runs,) = cache.reserve([Claim("kv", 4)])
    plane = cache.planes["kv"]
    address = plane.locate(runs[0]).read("k", 1).data_ptr()
    cache.reserve([Claim("kv", 200)])
    assert plane.locate(runs[0]).read("k", 1).data_ptr() == address
    assert plane.locate(Run(runs[0].slot + 1, 2)).read("k", 1).data_ptr() == address + 2 * 8 * 4


def test_a_wide_read_begins_with_the_row_even_in_the_last_slot_and_layer():
    cache = store()
    plane = cache.planes["lr:plan"]
    (runs,) = cache.reserve([Claim("lr:plan", 8)])
    write(plane, "lr", 2, runs, torch.arange(32).view(8, 4))
    wide = plane.locate(runs[0]).read_wide("lr", 2, 8)
    assert wide.shape == (8, 8)
    assert torch.equal(wide[:, :4].float(), torch.arange(32).view(8, 4).float())


def test_fresh_slots_are_poisoned_for_tests():
    cache = store()
    (runs,) = cache.reserve([Claim("kv", 3)])
    assert cache.planes["kv"].locate(runs[0]).read("v", 0).isnan().all()


def test_a_claim_over_the_budget_takes_nothing():
    row = LAYOUT.kv_spec().row_bytes
    cache = store(budget_bytes=10 * row)
    cache.reserve([Claim("kv", 6)])
    with pytest.raises(CacheFullError, match=f"needs {5 * row + 24:,} bytes, {4 * row:,} of {10 * row:,} are free"):
        cache.reserve([Claim("lr:plan", 1), Claim("kv", 5)])
    assert cache.held_bytes == 6 * row
    cache.reserve([Claim("kv", 4)])
    assert cache.held_bytes == cache.peak_bytes == 10 * row
