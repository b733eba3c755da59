"""A turn takes all the room it may need before it starts: once it has, it never fails for want of it."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentrt.errors import CacheFullError, TurnCancelledError
from agentrt.model.sampling import Sampling
from tests.engine.conftest import QKVO, VARIANTS
from tests.models import AGENTS

KEYED = [*(each for each in VARIANTS if each.endswith(QKVO)), "rebase_shared:auto,fuse_rows=0/qkvo"]
CORE = {"pre_lr_shared/qkvo", "rebase_shared:lp/qkvo", "rebase_shared:auto/qkvo", "rebase_shared:auto,fuse_rows=0/qkvo"}
most_keyed = pytest.mark.parametrize(
    "scheme", [each if each in CORE else pytest.param(each, marks=pytest.mark.slow) for each in KEYED + VARIANTS]
)

TURN = st.tuples(
    st.sampled_from(AGENTS),
    st.integers(0, 30),
    st.integers(1, 12),
    st.integers(1, 12),
    st.sampled_from(["goes on", "is cancelled"]),
)
"""Adapter, tokens of context, most new tokens, after how many it stops or is cancelled, and which of the two."""


@most_keyed
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(turns=st.lists(TURN, min_size=1, max_size=6), ride=st.integers(0, 4), step=st.integers(3, 60))
def test_a_turn_that_has_started_needs_no_more_than_it_holds(open_engine, scheme, turns, ride, step):
    engine = open_engine(scheme, ride_rows=ride, max_step_tokens=step, chunk_tokens=5)
    session, running = engine.session([1, 2, 3]), []
    for adapter, length, new, after, end in turns:
        engine._store.budget_bytes = None

        def stop(generated, end=end, after=after):
            engine._store.budget_bytes = engine._store.held_bytes
            if len(generated) == after and end == "is cancelled":
                running[-1].cancel()
            return len(generated) == after

        with engine._changed:  # so that no token comes before the turn is in the list
            turn = session.turn(adapter, [5] * length, Sampling(max_new_tokens=new, stop=stop))
            running.append(turn)
        try:
            assert len(turn.result.token_ids) == min(new, after)
        except TurnCancelledError:
            assert end == "is cancelled"
        with engine._changed:
            assert engine._changed.wait_for(lambda: not session._work.pending, timeout=100)
        assert session._work.failure is None
    engine.check_integrity()
    engine.close()


@pytest.mark.parametrize("scheme", sorted(CORE))
def test_whatever_the_budget_a_turn_is_refused_before_its_first_token_or_ends(open_engine, scheme):
    turns = (("plan", 9, 4), ("action", 7, 5), ("reflect", 1, 3))
    probe = open_engine(scheme)
    with probe.session() as session:
        for adapter, length, new in turns:
            session.turn(adapter, [5] * length, Sampling(max_new_tokens=new)).result  # noqa: B018
    peak, ended = probe.stats().peak_bytes, set()
    for twentieth in range(21):
        engine = open_engine(scheme, kv_budget_bytes=peak * twentieth // 20)
        session = engine.session()
        for adapter, length, new in turns:
            turn, told = session.turn(adapter, [5] * length, Sampling(max_new_tokens=new)), []
            try:
                for token in turn:
                    told.append(token)
                assert len(told) == new
                ended.add(twentieth)
            except CacheFullError:
                assert told == []
        engine.close()
    assert 0 not in ended
    assert 20 in ended
