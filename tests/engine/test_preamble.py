"""Preambles shared between sessions: computed once, the same slots for all, and no difference to be seen."""

import itertools

import pytest
import torch

from agentrt.errors import CacheFullError, TurnCancelledError
from agentrt.model.sampling import Sampling
from tests.engine.cast import QKVO
from tests.engine.conftest import VARIANTS, every_scheme, few_schemes
from tests.models import random_turns

PREAMBLE = [(7 * i) % 211 for i in range(500)]
OWN_PASS = ("non_shared", "base_shared", "own_kv")
"""Here every agent reads the preamble by its own path."""


def two_turns(session):
    """A turn of plan and one of action; their results."""
    return [
        session.turn("plan", [3, 1, 4], Sampling(max_new_tokens=2)).result,
        session.turn("action", [5, 9], Sampling(max_new_tokens=2)).result,
    ]


def rows(engine):
    stats = engine.stats()
    return stats.prefill_rows + stats.neutral_rows


@every_scheme
def test_eight_sessions_compute_a_preamble_once_per_path_and_hold_the_same_slots(open_engine, scheme):
    engine = open_engine(scheme)
    sessions = [engine.session(PREAMBLE) for _ in range(8)]
    counts = [rows(engine)]
    for session in sessions:
        two_turns(session)
        session.settle()
        counts.append(rows(engine))
    each = [after - before for before, after in itertools.pairwise(counts)]
    paths = 2 if scheme.removesuffix(QKVO) in OWN_PASS else 1
    assert each == [each[1] + 500 * paths] + [each[1]] * 7
    for name, tape in sessions[0]._work.sharing.tapes.items():
        if tape.start == 0 and "/" not in name:  # plane/agent: the compact rows an agent repaired
            shared = tape.runs(0, 500)
            assert all(each._work.sharing.tapes[name].runs(0, 500) == shared for each in sessions)
            assert addresses(engine, tape) == [addresses(engine, s._work.sharing.tapes[name]) for s in sessions][-1]
            pool = engine._store.planes[tape.plane].pool
            slots = [slot for run in shared for slot in range(run.slot, run.slot + run.size)]
            assert {pool.refcount(slot) for slot in slots} == {8 + 1}
    used = engine.stats().preambles
    assert sum(use.misses for use in used) == paths
    assert sum(use.hits for use in used) == 7 * paths
    assert sum(use.reused_tokens for use in used) == 7 * paths * 500
    engine.check_integrity()


def addresses(engine, tape):
    plane = engine._store.planes[tape.plane]
    part = plane.spec.parts[0].name
    layer = plane.spec.layers[-1]
    return [row.data_ptr() for run in tape.runs(0, 500) for row in plane.locate(run).read(part, layer)]


@few_schemes
def test_sessions_that_start_at_once_compute_it_once(open_engine, scheme):
    engine = open_engine(scheme, max_step_tokens=64)
    sessions = [engine.session(PREAMBLE) for _ in range(8)]
    turns = [session.turn("plan", [3, 1, 4], Sampling(max_new_tokens=2)) for session in sessions]
    results = {turn.result.token_ids for turn in turns}
    assert len(results) == 1
    (use,) = engine.stats().preambles
    assert (use.adapter, use.hits, use.misses) == ("plan", 7, 1)
    neutral = scheme.startswith(("rebase_shared", "neutral_prefix")) and "pivot" not in scheme
    assert use.path == ("" if neutral else "plan")


@few_schemes
@pytest.mark.parametrize("length", [1, 7, 40])
def test_a_hit_equals_a_miss(open_engine, scheme, length):
    engine, alone = open_engine(scheme), open_engine(scheme, max_preambles=0)
    for seed in range(3):  # the first computes it, the others find it
        here, there = engine.session(PREAMBLE[:length]), alone.session(PREAMBLE[:length])
        for agent, context, forced in random_turns(seed, count=4):
            sampling = Sampling(max_new_tokens=len(forced))
            got, want = (session.turn(agent, context, sampling).result for session in (here, there))
            assert got.token_ids == want.token_ids
            torch.testing.assert_close(torch.tensor(got.logprobs), torch.tensor(want.logprobs), rtol=0, atol=2e-5)
        for session in (here, there):
            session.settle()
        assert here.trajectory.processed == there.trajectory.processed
        assert here.kv_bytes == there.kv_bytes
    assert engine.stats().preambles_kept >= 1
    assert alone.stats().preambles_kept == 0


@every_scheme
def test_usage_tells_what_a_second_session_reused(open_engine, scheme):
    engine = open_engine(scheme)
    first, second = (two_turns(engine.session(PREAMBLE))[0].usage for _ in range(2))
    assert (first.reused_tokens, first.context_tokens) == (0, 503)
    assert (second.reused_tokens, second.context_tokens) == (500, 3)


@few_schemes
def test_a_cancelled_turn_leaves_the_preamble_to_others(open_engine, scheme):
    engine = open_engine(scheme, max_step_tokens=16)
    doomed, session = engine.session(PREAMBLE), engine.session(PREAMBLE)
    turn = doomed.turn("plan", [1], Sampling(max_new_tokens=2))
    waiting = session.turn("plan", [3, 1, 4], Sampling(max_new_tokens=2))
    turn.cancel()
    with pytest.raises(TurnCancelledError):
        turn.result  # noqa: B018
    expected = open_engine(scheme).session(PREAMBLE).turn("plan", [3, 1, 4], Sampling(max_new_tokens=2)).result
    assert waiting.result.token_ids == expected.token_ids
    assert doomed.trajectory.num_processed == 0
    assert doomed.turn("plan", [3, 1, 4], Sampling(max_new_tokens=2)).result.token_ids == expected.token_ids
    engine.check_integrity()


@every_scheme
def test_a_session_may_be_cropped_into_the_preamble_forked_and_closed(open_engine, scheme):
    engine, alone = open_engine(scheme), open_engine(scheme, max_preambles=0)
    kept = engine.session(PREAMBLE[:30])
    two_turns(kept)
    found = []
    for each in (engine, alone):
        session = each.session(PREAMBLE[:30])
        two_turns(session)
        twin = session.fork()
        session.crop(17)
        session.append([8, 8])
        found.append([result.token_ids for branch in (session, twin) for result in two_turns(branch)])
        session.close()
        each.check_integrity()
        found[-1] += [result.token_ids for result in two_turns(twin)]
        twin.close()
    assert found[0] == found[1]
    assert two_turns(kept)
    engine.check_integrity()


@few_schemes
def test_a_budget_below_the_preamble_is_refused_with_the_fix(open_engine, scheme):
    row = open_engine(scheme)._store.planes["kv"].spec.row_bytes
    engine = open_engine(scheme, kv_budget_bytes=400 * row)
    session = engine.session(PREAMBLE)
    with pytest.raises(CacheFullError, match=r"preamble of 500 tokens alone needs [\d,]+ bytes.*raise the budget"):
        session.turn("plan", [1], Sampling(max_new_tokens=2)).result  # noqa: B018
    assert engine.stats().held_bytes == 0
    assert two_turns(engine.session(PREAMBLE[:9]))


@few_schemes
def test_preambles_leave_when_a_turn_needs_their_room(open_engine, scheme):
    probe = open_engine(scheme)
    two_turns(session := probe.session(PREAMBLE))
    session.settle()
    engine = open_engine(scheme, kv_budget_bytes=probe.stats().peak_bytes * 21 // 10)
    for start in range(4):
        preamble = [start, *PREAMBLE[1:]]
        with engine.session(preamble) as session:
            two_turns(session)
        with engine.session(preamble) as session:
            assert two_turns(session)[0].usage.reused_tokens == 500
        engine.check_integrity()
    assert 1 <= engine.stats().preambles_kept < 4 * len(probe.stats().preambles)


@pytest.mark.parametrize("scheme", [name for name in VARIANTS if name != "neutral_prefix:early"])
def test_with_preamble_paper_it_is_context_of_the_first_turn_and_nothing_is_kept(open_engine, scheme):
    name, slash, targets = scheme.partition("/")
    paper = name + (",preamble=paper" if ":" in name else ":preamble=paper")
    engine = open_engine(paper + slash + targets)
    found = []
    for preamble, context in ((PREAMBLE[:20], []), ([], PREAMBLE[:20])):
        session = engine.session(preamble)
        session.append(context)
        found.append([result.token_ids for result in two_turns(session)])
        assert session.trajectory.processed[0].path == ("" if "full," in scheme else "plan")
    assert found[0] == found[1]
    assert engine.stats().preambles_kept == 0


@every_scheme
def test_a_preamble_whose_last_token_was_read_again_by_another_path_is_not_left_to_others(open_engine, scheme):
    """A turn with nothing to feed steps back one token: here the preamble's last."""
    engine, alone = open_engine(scheme), open_engine(scheme, max_preambles=0)
    odd = engine.session(PREAMBLE[:5])
    two_turns(odd)
    odd.crop(5)
    for agent, context in (("action", []), ("reflect", [3])):
        odd.turn(agent, context, Sampling(max_new_tokens=2)).result  # noqa: B018
    found = []
    for each in (engine, alone):
        session = each.session(PREAMBLE[:5])
        two_turns(session)
        forced = Sampling(max_new_tokens=4, forced=[5, 6, 7, 8])
        found.append([session.turn(agent, [3], forced).result for agent in ("reflect", "plan", "action")])
    for got, want in zip(*found, strict=True):
        torch.testing.assert_close(torch.tensor(got.logprobs), torch.tensor(want.logprobs), rtol=0, atol=2e-5)
