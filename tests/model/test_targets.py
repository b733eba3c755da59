"""Rows of a step land in the slots of their targets: as stretches, and single rows of a segment together."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from agentrt.cache.plane import Part, Plane, PlaneSpec
from agentrt.cache.slots import Run
from agentrt.model.targets import Target, Targets

SLOTS = 12
SECOND = range(13, 37)
"""Slots of the second segment, which is twice as large; a gap keeps it apart from the first."""
PARTS = (Part("k", (2, 4), torch.float32), Part("lr", (3,), torch.float32, wide_read=8))


def plane(only=None, parts=PARTS):
    made = Plane(PlaneSpec("kv", 2, parts, only=only), torch.device("cpu"), SLOTS)
    for _ in range(2):
        made.pool.allocate(SLOTS)
    made.materialise()
    assert made.pool.segments == [(0, SLOTS), (SECOND.start, SECOND.stop)]
    return made


def contents(made, part):
    return torch.cat([segment[part] for segment in made.segments], 1)


@st.composite
def placed(draw):
    """Runs of one or more rows in the order of the step, with rows between them that are not written."""
    free = list(draw(st.permutations([*range(SLOTS), *SECOND])))
    targets, row = [], 0
    for size in draw(st.lists(st.sampled_from([1, 1, 1, 3]), min_size=1, max_size=8)):
        row += draw(st.integers(0, 1))
        fits = [s for s in free if {*range(s, s + size)} <= {*free}]
        if fits:
            free = [s for s in free if not fits[0] <= s < fits[0] + size]
            targets.append((row, fits[0], size))
            row += size
    return targets, row + draw(st.integers(0, 2))


@given(placed(), st.sampled_from(["k", "lr"]), st.booleans())
def test_every_row_is_in_its_slot_and_nothing_else_is_written(places, part, strided):
    (targets, num_rows), made = places, plane()
    shape = {"k": (2, 4), "lr": (3,)}[part]
    rows = torch.randn(num_rows, *shape)
    if strided:
        rows = torch.randn(*shape, num_rows).movedim(-1, 0)
    wanted = torch.zeros(2, SECOND.stop, *shape)
    for row, slot, size in targets:
        wanted[1, slot : slot + size] = rows[row : row + size]
    Targets([Target(row, row + size, made.locate(Run(slot, size))) for row, slot, size in targets]).write(part, 1, rows)
    assert torch.equal(contents(made, part), wanted[:, [*range(SLOTS), *SECOND]])


def test_a_plane_of_some_layers_is_written_in_those():
    made = plane(only=(3, 7))
    rows = torch.randn(2, 2, 4)
    Targets([Target(row, row + 1, made.locate(Run(slot, 1))) for row, slot in ((0, 5), (1, 2))]).write("k", 7, rows)
    assert torch.equal(made.segments[0]["k"][1][[5, 2]], rows)
    assert not made.segments[0]["k"][0].any()


def test_flat_rows_are_taken_by_heads_and_rounded_to_the_planes_dtype():
    made = plane(parts=(Part("k0", (2, 4), torch.bfloat16),))
    rows = torch.randn(3, 8)
    targets = Targets([Target(row, row + 1, made.locate(Run(slot, 1))) for row, slot in ((0, 4), (2, 9))])
    targets.write("k0", 0, rows)
    assert torch.equal(made.segments[0]["k0"][0][[4, 9]], rows[[0, 2]].view(2, 2, 4).bfloat16())


@pytest.mark.parametrize("count", [1, 2])
def test_a_part_that_the_plane_does_not_have_is_left_out(count):
    made = plane(parts=PARTS[:1])
    targets = Targets([Target(row, row + 1, made.locate(Run(row, 1))) for row in range(count)])
    targets.write("v", 0, torch.ones(count, 2, 4))
    assert not made.segments[0]["k"].any()
