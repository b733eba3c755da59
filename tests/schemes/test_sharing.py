"""Physical sharing: the same rows in memory, reference counts, and no prefix-sized allocation while decoding."""

import pytest
import torch

from agentrt.cache.slots import cut
from tests.models import AGENTS, make, random_turns
from tests.rig import Rig

SHARED = ["full_shared", "pre_lr_shared", "rebase_shared:lp"]
SELECTIVE = ["droidspeak", "cacheblend", "relay_caching"]


def addresses(rig, tape, start, end):
    """Memory address of each token's key row in layer 1."""
    tape = rig.sharing.tapes[tape]
    plane = rig.store.planes[tape.plane]
    rows = [row for run in tape.runs(start, end) for row in plane.locate(run).read("k", 1)]
    return [row.data_ptr() for row in rows]


def view_addresses(rig, view, end):
    plane = rig.store.planes[view.plane]
    rows = [row for run in cut(view.runs, 0, end) for row in plane.locate(run).read("k", 1)]
    return [row.data_ptr() for row in rows]


@pytest.mark.parametrize("scheme", SHARED + SELECTIVE)
def test_all_agents_read_the_same_rows_before_and_after_generation(scheme):
    model, folders = make()
    rig = Rig(model, folders, scheme)
    rig.turn("plan", list(range(40)), [1, 2, 3])
    shared = rig.trajectory.num_processed
    name = "shared" if scheme in ("full_shared", *SELECTIVE) else "base"
    before = addresses(rig, name, 0, shared)
    assert len(set(before)) == shared
    for agent in AGENTS:
        rig.trajectory.append([7, 8], "user", "context")
        passes = rig.sharing.begin(agent, 5)
        assert view_addresses(rig, passes[-1].view, shared) == before
        rig.run(passes)
        for token in (1, 2, 3):
            rig.trajectory.append([token], agent, "generated")
            passes = rig.sharing.feed()
            assert view_addresses(rig, passes[0].view, shared) == before
            rig.run(passes)
        rig.run(rig.sharing.end())
        assert addresses(rig, name, 0, shared) == before


def test_agents_of_non_shared_share_nothing():
    model, folders = make()
    rig = Rig(model, folders, "non_shared")
    rig.turn("plan", list(range(9)), [1])
    rig.turn("action", [1], [2])
    assert not set(addresses(rig, "plan", 0, 9)) & set(addresses(rig, "action", 0, 9))


@pytest.mark.parametrize("scheme", ["non_shared", *SHARED, *SELECTIVE])
def test_a_fork_raises_refcounts_and_copies_nothing(scheme):
    model, folders = make()
    rig = Rig(model, folders, scheme)
    for turn in random_turns(seed=1, count=4):
        rig.turn(*turn)
    held = rig.store.held_bytes
    twin = rig.sharing.fork(rig.trajectory.copy())
    assert rig.store.held_bytes == held
    for name, tape in ((name, tape) for name, tape in rig.sharing.tapes.items() if tape.end):
        assert tape.runs(0, tape.end) == twin.tapes[name].runs(0, tape.end)
        pool = rig.store.planes[tape.plane].pool
        assert {pool.refcount(slot) for run in tape.runs(0, tape.end) for slot in range(run.slot, sum(run))} == {2}
    twin.close()
    rig.store.check_integrity()
    assert rig.store.held_bytes == held
    rig.sharing.close()
    assert rig.store.held_bytes == 0


@pytest.mark.parametrize("scheme", ["non_shared", *SHARED, *SELECTIVE])
def test_decoding_allocates_nothing_the_size_of_the_prefix(scheme):
    """bf16, as served: the largest allocation of a decode step is smaller than one layer's narrowest column."""
    model, folders = make()
    rig = Rig(model.bfloat16(), folders, scheme, segment_slots=4096)
    prefix = 1500
    for agent in ("plan", "action", "plan"):  # so that plan reads rows of its own beside others' where it repairs
        rig.trajectory.append([index % 211 for index in range(prefix // 3)], "user", "context")
        rig.run(rig.sharing.begin(agent, 8))
        if agent == "action":
            rig.run(rig.sharing.end())
    rig.trajectory.append([5], "plan", "generated")
    passes = rig.sharing.feed()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        rig.run(passes)
    largest = max(event.self_cpu_memory_usage for event in profile.events())
    column = 2 * 4 * prefix  # bf16, rank 4
    assert 0 < largest < column


def test_runs_stay_few_however_many_sessions_grow_together():
    model, folders = make()
    rig = Rig(model, folders, "pre_lr_shared", segment_slots=64)
    layout = rig.backbone.layout(rig.adapters)
    from agentrt.cache.tape import Tape, reserve
    from agentrt.trajectory import Trajectory

    others = [rig.scheme.open(layout, rig.store, Trajectory()) for _ in range(7)]
    tapes = [Tape(rig.store, "kv") for _ in others]
    for end in range(8, 1024, 8):
        for tape in tapes:
            reserve(rig.store, [(tape, end)])
            tape.extend(end)
    assert max(len(tape.runs(0, tape.end)) for tape in tapes) <= 16
    rig.store.check_integrity()
