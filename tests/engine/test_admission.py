"""Turns that the KV budget has no room for yet: they wait while room may come, in a fair order; nobody is evicted."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentrt.engine import EngineConfig
from agentrt.engine.admission import Admission
from agentrt.errors import CacheFullError, QueueFullError, TurnCancelledError, UsageError
from agentrt.model.sampling import Sampling
from tests.models import AGENTS

SCHEMES = ["pre_lr_shared", "non_shared", "rebase_shared:db", "rebase_shared:auto", "cacheblend", "pre_lr_shared/qkvo"]
BUDGET = 100


def run(session, length, new, **options):
    """A turn of `length` tokens of context and `new` generated ones."""
    return session.turn("plan", [5] * length, Sampling(max_new_tokens=new, **options))


class Clock:
    """The real one, as far ahead as a test says."""

    ahead_s = 0.0

    def __call__(self):
        return time.perf_counter() + self.ahead_s


def counted(engine):
    """A list that grows whenever the engine's admission is asked."""
    admit, looked = engine._admission.admit, []

    def counting(sessions):
        looked.append(len(sessions))
        return admit(sessions)

    engine._admission.admit = counting
    return looked


def reviewed(engine):
    """Once the worker has found nothing more to do with the turns submitted so far."""
    with engine._changed:
        assert engine._changed.wait_for(lambda: engine._admission.patience_s is not None, timeout=100)


def test_a_turn_without_room_waits_until_one_that_runs_has_finished_and_is_closed(open_engine):
    engine = open_engine(kv_budget_tokens=BUDGET)
    first, second = engine.session(), engine.session()
    with engine._changed:
        holder, waiter = run(first, 11, 70), run(second, 11, 20)
    assert len(holder.result.token_ids) == 70
    reviewed(engine)  # nothing runs, and `first` still holds its slots
    assert not waiter.done
    first.close()
    assert len(waiter.result.token_ids) == 20
    assert engine.stats().peak_bytes <= engine._store.budget_bytes


@pytest.mark.parametrize("free", [lambda idle: idle.close(), lambda idle: idle.crop(1)], ids=["close", "crop"])
def test_a_session_between_two_turns_may_still_make_room(open_engine, free):
    engine = open_engine(kv_budget_tokens=BUDGET)
    idle, other = engine.session(), engine.session()
    run(idle, 60, 2).result  # noqa: B018
    waiter = run(other, 40, 9)
    reviewed(engine)
    assert (engine.health().waiting_for_room, engine.stats().waited_for_room) == (1, 1)
    free(idle)
    assert len(waiter.result.token_ids) == 9
    assert engine.health().waiting_for_room == 0


def test_it_is_refused_when_it_has_waited_long_enough_while_nothing_ran(open_engine):
    engine = open_engine(kv_budget_tokens=BUDGET, room_timeout_s=1e9)
    idle, first, second = (engine.session() for _ in range(3))
    run(idle, 60, 2).result  # noqa: B018
    clock = Clock()
    admission = Admission(engine._store.budget_bytes, 60.0, clock)
    with engine._changed:  # the worker waits for the lock, and this one decides in its place
        waiting = [run(first, 40, 9), run(second, 40, 9)]
        assert admission.admit(engine._sessions) == 1, "the second one waits behind the first"
        assert 50 < admission.patience_s <= 60
        clock.ahead_s = 50.0
        assert admission.admit(engine._sessions) == 0
        assert 0 < admission.patience_s <= 10
        assert not any(turn.done for turn in waiting)
        clock.ahead_s = 61.0
        admission.admit(engine._sessions)
        assert admission.patience_s is None
    for turn in waiting:
        with pytest.raises(CacheFullError, match=r"KV budget.* it waited 60 s .*room_timeout_s in EngineConfig"):
            turn.result  # noqa: B018
    assert len(run(first, 8, 4).result.token_ids) == 4


def test_time_in_which_others_run_does_not_count(open_engine):
    engine = open_engine(kv_budget_tokens=BUDGET, room_timeout_s=1e9)
    holder, other = engine.session(), engine.session()
    run(holder, 50, 2).result  # noqa: B018
    clock = Clock()
    admission = Admission(engine._store.budget_bytes, 60.0, clock)
    with engine._changed:
        waiter, running = run(other, 40, 20), run(holder, 2, 20)
        for clock.ahead_s in (0.0, 100.0, 200.0):
            admission.admit(engine._sessions)
            assert (waiter.done, admission.patience_s) == (False, None)
        running.cancel()
        admission.admit(engine._sessions)
        assert 50 < admission.patience_s <= 60
        clock.ahead_s = 261.0
        admission.admit(engine._sessions)
    with pytest.raises(CacheFullError, match="it waited 60 s"):
        waiter.result  # noqa: B018


def test_the_worker_wakes_by_itself_to_refuse_and_sleeps_until_then(open_engine):
    engine = open_engine(kv_budget_tokens=BUDGET, room_timeout_s=0.2)
    idle, other = engine.session(), engine.session()
    run(idle, 60, 2).result  # noqa: B018
    looked = counted(engine)
    with pytest.raises(CacheFullError, match=r"it waited 0\.2 s"):
        run(other, 40, 9).result  # noqa: B018
    assert len(looked) <= 10


def test_turns_that_wait_are_not_looked_at_in_every_step(open_engine):
    engine = open_engine(kv_budget_tokens=BUDGET)
    first, second = engine.session(), engine.session()
    looked = counted(engine)
    with engine._changed:
        holder, waiter = run(first, 11, 70), run(second, 11, 20)
    assert len(holder.result.token_ids) == 70
    first.close()
    assert len(waiter.result.token_ids) == 20
    assert len(looked) <= 20


def test_where_all_that_hold_slots_wait_the_last_to_come_is_refused(open_engine):
    engine = open_engine(kv_budget_tokens=BUDGET)
    sessions = [engine.session() for _ in range(3)]
    for session in sessions[:2]:
        run(session, 40, 2).result  # noqa: B018
    with engine._changed:
        new, first, second = run(sessions[2], 40, 2), run(sessions[0], 20, 9), run(sessions[1], 20, 9)
    with pytest.raises(CacheFullError, match="every session that holds slots waits for room"):
        second.result  # noqa: B018
    reviewed(engine)
    assert (first.done, new.done) == (False, False)
    sessions[1].close()
    assert len(first.result.token_ids) == 9
    sessions[0].close()
    assert len(new.result.token_ids) == 2


def test_a_negative_wait_is_refused():
    with pytest.raises(UsageError, match=r"room_timeout_s is -1; give seconds from 0 up"):
        EngineConfig(room_timeout_s=-1)


def test_it_shows_while_it_waits_and_can_be_cancelled(open_engine):
    engine = open_engine(kv_budget_tokens=BUDGET)
    first, second = engine.session(), engine.session()
    seen = []

    def look(generated):
        seen.append((engine.health().waiting_for_room, engine.health().waiting, engine.stats().waited_for_room))
        if len(generated) == 5:
            waiter.cancel()
        return len(generated) == 9

    with engine._changed:
        holder = run(first, 11, 70, stop=look)
        waiter = run(second, 11, 20)
    assert len(holder.result.token_ids) == 9
    with pytest.raises(TurnCancelledError):
        waiter.result  # noqa: B018
    assert seen[0] == (1, 1, 1)
    assert seen[-1] == (0, 0, 1)
    assert second.trajectory.token_ids == []
    assert len(run(second, 11, 20).result.token_ids) == 20


def test_what_can_never_fit_is_refused_while_others_run(open_engine):
    engine = open_engine(kv_budget_tokens=BUDGET)
    first, second = engine.session(), engine.session()
    run(second, 10, 2).result  # noqa: B018
    refused = []

    def look(generated):
        refused.append(never.done)
        return False

    with engine._changed:
        holder = run(first, 11, 50, stop=look)
        never = run(second, 60, 31)  # and the 11 it holds: 101
    with pytest.raises(CacheFullError, match="KV budget"):
        never.result  # noqa: B018
    assert len(holder.result.token_ids) == 50
    assert refused[0]
    assert engine.stats().waited_for_room == 0


def test_one_that_waits_for_idle_sessions_alone_is_refused_at_once_if_so_configured(open_engine):
    engine = open_engine(kv_budget_tokens=BUDGET, room_timeout_s=0)
    idle, other = engine.session(), engine.session()
    run(idle, 60, 2).result  # noqa: B018
    with pytest.raises(CacheFullError, match="KV budget"):
        run(other, 40, 9).result  # noqa: B018
    with engine._changed:
        running, waiter = run(idle, 2, 20), run(other, 40, 9)
    assert len(running.result.token_ids) == 20
    with pytest.raises(CacheFullError, match="KV budget"):  # `idle` keeps what it has read
        waiter.result  # noqa: B018
    assert len(run(other, 8, 4).result.token_ids) == 4


def test_a_small_new_turn_does_not_pass_a_large_one_that_waits_but_a_begun_session_does(open_engine):
    engine = open_engine(kv_budget_tokens=BUDGET)
    begun, holder, large, small = (engine.session() for _ in range(4))
    run(begun, 4, 2).result  # noqa: B018
    order = []

    def noted(name):
        def stop(generated):
            order.append(name)
            if order.count("holder") == 6:
                turns[0].cancel()
            return False

        return stop

    with engine._changed:
        turns = [
            run(holder, 11, 70, stop=noted("holder")),
            run(large, 50, 4, stop=noted("large")),
            run(small, 2, 2, stop=noted("small")),
            run(begun, 2, 2, stop=noted("begun")),
        ]
    assert [len(turn.result.token_ids) for turn in turns[1:]] == [4, 2, 2]
    assert order.index("holder") <= order.index("begun") < order.index("large") < order.index("small")


def test_waiting_for_room_is_bounded_by_the_queue(open_engine):
    engine = open_engine(kv_budget_tokens=BUDGET, max_waiting=2)
    sessions = [engine.session() for _ in range(4)]
    tokens = iter(holder := run(sessions[0], 11, 80))
    next(tokens)
    with engine._changed:
        waiters = [run(session, 20, 2) for session in sessions[1:3]]
        with pytest.raises(QueueFullError):
            run(sessions[3], 20, 2)
    holder.cancel()
    assert [len(turn.result.token_ids) for turn in waiters] == [2, 2]


CALLS = st.tuples(st.sampled_from(AGENTS), st.integers(1, 60), st.integers(1, 30), st.booleans())
EPISODES = st.lists(st.lists(CALLS, min_size=1, max_size=4), min_size=2, max_size=8)


def play(session, calls):
    """The outcome of each call: its tokens, or the error and how many tokens had come before it."""
    outcomes = []
    with session:
        for agent, length, new, cancel in calls:
            turn = session.turn(agent, list(range(length)), Sampling(max_new_tokens=new))
            tokens = []
            try:
                for token in turn:
                    tokens.append(token)
                    if cancel and len(tokens) == new // 2:
                        turn.cancel()
                outcomes.append((tuple(tokens), None))
            except (CacheFullError, TurnCancelledError) as error:
                outcomes.append((tuple(tokens), type(error)))
    return outcomes


@pytest.mark.parametrize("scheme", SCHEMES)
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(episodes=EPISODES, step=st.integers(4, 60))
def test_any_mix_ends_within_the_budget_and_without_an_eviction(open_engine, scheme, episodes, step):
    engine = open_engine(scheme, kv_budget_tokens=BUDGET, max_step_tokens=step, chunk_tokens=5)
    with ThreadPoolExecutor(len(episodes)) as pool:
        running = [pool.submit(play, engine.session([1, 2, 3]), calls) for calls in episodes]
        found = [each.result(timeout=100) for each in running]
    assert engine.stats().peak_bytes <= engine._store.budget_bytes
    for outcomes in found:
        for tokens, error in outcomes:
            assert error is not CacheFullError or tokens == (), "a running turn was evicted"
    assert engine.health().waiting == 0
    engine.check_integrity()
    engine.close()


@pytest.mark.parametrize("scheme", [each for each in SCHEMES if each != "cacheblend"])  # its first turns hold little
def test_turns_that_waited_say_what_they_say_alone(open_engine, scheme):
    quiet, engine = open_engine(scheme), open_engine(scheme, kv_budget_tokens=2 * BUDGET, max_step_tokens=9)
    alone = [run(quiet.session([1, 2, 3]), 12 + seed, 40).result.token_ids for seed in range(8)]
    sessions = [engine.session([1, 2, 3]) for _ in alone]
    with engine._changed:
        turns = [run(session, 12 + seed, 40) for seed, session in enumerate(sessions)]
    found = []
    for turn, session in zip(turns, sessions, strict=True):
        found.append(turn.result.token_ids)
        session.close()
    assert engine.stats().waited_for_room > 0
    assert found == alone
