"""Any mix of turns, cancels, crops, forks and closes leaves what a quiet session doing the same would have."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentrt.errors import CacheFullError, TurnCancelledError
from agentrt.model.sampling import Sampling
from tests.engine.conftest import few_schemes
from tests.models import AGENTS

TURN = st.tuples(
    st.just("turn"), st.sampled_from(AGENTS), st.lists(st.integers(0, 210), min_size=1, max_size=9), st.integers(1, 5)
)
CANCEL = st.tuples(
    st.just("cancel"), st.sampled_from(AGENTS), st.lists(st.integers(0, 210), min_size=1, max_size=9), st.integers(0, 3)
)
OTHER = st.tuples(st.sampled_from(["open", "crop", "fork", "settle", "close", "full"]), st.integers(0, 99))
OPERATIONS = st.lists(st.tuples(st.integers(0, 9), st.one_of(TURN, TURN, CANCEL, OTHER)), max_size=9)


def apply(session, operation):
    """Do a successful operation on a session."""
    match operation:
        case ("turn", agent, context, new):
            session.turn(agent, context, Sampling(max_new_tokens=new)).result  # noqa: B018
        case ("crop", length):
            session.crop(length)


PREAMBLES = ([7, 7, 7], [7, 7, 7, 8], [9])


def replay(engine, preamble, history):
    session = engine.session(preamble)
    for operation in history:
        apply(session, operation)
    return session


@few_schemes
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(operations=OPERATIONS)
def test_sessions_hold_what_their_successful_operations_leave(open_engine, scheme, operations):
    engine = open_engine(scheme, max_step_tokens=7, chunk_tokens=3, max_context=256)
    quiet = open_engine(scheme, max_context=256, max_preambles=0)
    sessions = [(engine.session(PREAMBLES[0]), PREAMBLES[0], [])]
    for which, operation in operations:
        index = which % len(sessions)
        session, preamble, history = sessions[index]
        match operation:
            case ("turn", *_):
                apply(session, operation)
                history.append(operation)
            case ("cancel", agent, context, after):
                turn = session.turn(agent, context, Sampling(max_new_tokens=100))
                tokens = iter(turn)
                for _ in range(after):
                    next(tokens)
                turn.cancel()
                with pytest.raises(TurnCancelledError):
                    turn.result  # noqa: B018
            case ("open", number) if len(sessions) < 4:
                other = PREAMBLES[number % len(PREAMBLES)]
                sessions.append((engine.session(other), other, []))
            case ("crop", percent):
                length = len(session.trajectory) * percent // 100
                session.crop(length)
                history.append(("crop", length))
            case ("fork", _) if len(sessions) < 4:
                sessions.append((session.fork(), preamble, list(history)))
            case ("settle", _):
                session.settle()
            case ("close", _) if len(sessions) > 1:
                sessions.pop(index)[0].close()
            case ("full", _):
                engine._store.budget_bytes = 0
                with pytest.raises(CacheFullError):
                    session.turn("plan", [1], Sampling(max_new_tokens=90)).result  # noqa: B018
                engine._store.budget_bytes = None
        engine.check_integrity()
    for session, preamble, history in sessions:
        alone = replay(quiet, preamble, history)
        assert session.trajectory.token_ids == alone.trajectory.token_ids
        for each in (session, alone):
            each.settle()
        assert session.kv_bytes == alone.kv_bytes
        assert session.trajectory.processed == alone.trajectory.processed
    for each in (engine, quiet):
        each.check_integrity()
        each.close()
    assert engine.stats().held_bytes == 0
