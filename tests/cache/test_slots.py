"""Slot books: free + held = total, no slot twice, runs in place, whatever the order of operations."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrt.cache.plane import Part, PlaneSpec
from agentrt.cache.slots import Run, SlotPool, concat, cut, length
from agentrt.cache.store import CacheStore
from agentrt.cache.tape import Tape, reserve
from agentrt.errors import CacheFullError


def slots(runs):
    return [slot for run in runs for slot in range(run.slot, run.slot + run.size)]


def test_a_lone_caller_gets_one_run_that_grows_in_place():
    pool = SlotPool(64)
    runs = pool.allocate(10)
    for _ in range(5):
        runs = concat(runs, pool.allocate(10, after=runs[-1].slot + runs[-1].size))
    assert runs == (Run(0, 60),)


def test_growth_adds_segments_and_moves_nothing():
    pool = SlotPool(16)
    first = pool.allocate(16)
    second = pool.allocate(40, after=16)
    assert first == (Run(0, 16),)
    assert length(second) == 40
    assert not set(slots(first)) & set(slots(second))
    assert pool.num_slots == sum(end - start for start, end in pool.segments)


def test_runs_never_cross_a_segment():
    pool = SlotPool(16)
    runs = concat(pool.allocate(16), pool.allocate(100, after=16))
    for run in runs:
        assert any(start <= run.slot and run.slot + run.size <= end for start, end in pool.segments)


def test_releasing_a_shared_slot_keeps_it_until_the_last_holder():
    pool = SlotPool(16)
    runs = pool.allocate(4)
    pool.retain(runs)
    pool.release(runs)
    assert pool.num_held == 4
    pool.release(cut(runs, 1, 3))
    assert pool.num_held == 2
    assert pool.refcount(runs[0].slot) == 1
    pool.check_integrity()


def test_a_free_slot_can_be_neither_retained_nor_released():
    pool = SlotPool(16)
    runs = pool.allocate(4)
    pool.release(runs)
    with pytest.raises(AssertionError):
        pool.release(runs)
    with pytest.raises(AssertionError):
        pool.retain(runs)


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 9)), max_size=6), st.data())
def test_cut_and_concat_are_slices_and_sums(parts, data):
    runs = tuple(Run(1000 * i + slot, size) for i, (slot, size) in enumerate(parts))
    start = data.draw(st.integers(0, length(runs)))
    end = data.draw(st.integers(start, length(runs)))
    assert slots(cut(runs, start, end)) == slots(runs)[start:end]
    assert slots(concat(cut(runs, 0, start), cut(runs, start, length(runs)))) == slots(runs)


SPEC = PlaneSpec("p", 1, (Part("x", (2,), torch.float32),))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["grow", "crop", "fork", "close", "trim"]), st.integers(0, 9), st.integers(1, 60))
    )
)
def test_books_balance_under_any_operations(operations):
    store = CacheStore([SPEC], segment_slots=16, budget_bytes=8 * 400)
    pool = store.planes["p"].pool
    tapes = [Tape(store, "p")]
    for verb, which, amount in operations:
        tape = tapes[which % len(tapes)]
        if verb == "grow":
            before = [t.runs(0, t.capacity) for t in tapes]
            try:
                reserve(store, [(tape, tape.end + amount)])
                tape.extend(tape.end + amount // 2 + 1)
            except CacheFullError:
                assert [t.runs(0, t.capacity) for t in tapes] == before
        elif verb == "crop":
            tape.crop(amount)
        elif verb == "trim":
            tape.trim()
        elif verb == "fork":
            tapes.append(tape.fork())
        elif len(tapes) > 1:
            tapes.remove(tape)
            tape.close()
        pool.check_integrity()
        held = {slot for t in tapes for slot in slots(t.runs(0, t.capacity))}
        assert pool.num_held == len(held)
        assert store.held_bytes == 8 * len(held)
    for tape in tapes:
        tape.close()
    assert pool.num_held == 0
    assert pool.num_free == pool.num_slots
