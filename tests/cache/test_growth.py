"""Growth of planes: within the budget's reach, undone where memory runs out, and no OpenMP team for the caller."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from agentrt.cache import plane
from agentrt.cache.plane import Part, PlaneSpec
from agentrt.cache.slots import SlotPool, length
from agentrt.cache.store import CacheStore, Claim
from agentrt.errors import CacheFullError

SPEC = PlaneSpec("kv", 2, (Part("k", (3,), torch.float32), Part("lr", (4,), torch.float32, wide_read=8)))


def test_a_pool_with_a_bound_does_not_double_past_it():
    pool = SlotPool(64, max_slots=100)
    pool.allocate(64)
    pool.allocate(30, after=64)
    assert pool.num_slots == 100
    pool.check_integrity()


def test_at_its_bound_a_pool_takes_small_extents_before_it_grows():
    pool = SlotPool(64, max_slots=64)
    runs = pool.allocate(64)
    for slot in range(0, 64, 2):
        pool.release([runs[0]._replace(slot=slot, size=1)])
    assert length(pool.allocate(32)) == 32
    assert pool.num_slots == 64
    pool.check_integrity()


def test_what_a_budget_can_hold_bounds_what_is_allocated():
    store = CacheStore([SPEC], budget_bytes=100 * SPEC.row_bytes, segment_slots=64)
    store.reserve([Claim("kv", 60)])
    store.reserve([Claim("kv", 40)])
    assert store.planes["kv"].pool.num_slots <= 101


def test_a_growth_that_fails_leaves_the_cache_as_it_was(monkeypatch: pytest.MonkeyPatch):
    store = CacheStore([SPEC], segment_slots=64)
    first = store.reserve([Claim("kv", 60)])[0]

    def no_memory(*_: object) -> torch.Tensor:
        raise MemoryError("none left")

    with monkeypatch.context() as patched:
        patched.setattr(plane, "_zeros", no_memory)
        with pytest.raises(CacheFullError, match="no memory left"):
            store.reserve([Claim("kv", 32)])
        assert length(store.reserve([Claim("kv", 4)])[0]) == 4, "slots that are there are still handed out"
    store.release("kv", first)
    assert length(store.reserve([Claim("kv", 60)])[0]) == 60
    assert length(store.reserve([Claim("kv", 100)])[0]) == 100, "and it grows again when there is memory"
    store.check_integrity()


def test_rows_are_zero_and_begin_at_a_cache_line():
    store = CacheStore([SPEC], segment_slots=64)
    (run,) = store.reserve([Claim("kv", 64)])[0]
    for part in ("k", "lr"):
        rows = store.planes["kv"].locate(run).read(part, 0)
        assert not rows.any()
        assert rows.data_ptr() % 64 == 0


def test_growing_starts_no_thread_of_the_callers_own():
    """In a process of its own: a team, once there, stays."""
    script = """
import os, threading, torch
from agentrt.cache.plane import Part, PlaneSpec
from agentrt.cache.store import CacheStore, Claim
torch.set_num_threads(2)
spec = PlaneSpec("kv", 30, (Part("k", (3, 64), torch.bfloat16),))
store = CacheStore([spec])
count = lambda: len(os.listdir("/proc/self/task"))
found = []
def grow():
    before = count()
    store.reserve([Claim("kv", 4096)])
    found.append(count() - before)
thread = threading.Thread(target=grow); thread.start(); thread.join()
print(found[0])
"""
    if not Path("/proc/self/task").is_dir():
        pytest.skip("threads are counted in /proc")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "0", done.stderr
