"""The engine as something a program embeds: health, drains, a bounded queue, forks, and memory after it is closed."""

import copy
import gc
import itertools
import threading
import time
import weakref

import pytest

from agentrt.engine import Engine, EngineConfig
from agentrt.errors import (
    EngineClosedError,
    EngineError,
    ForkedError,
    QueueFullError,
    SessionBusyError,
    TurnCancelledError,
    UsageError,
)
from agentrt.model.backbone import Backbone
from agentrt.model.sampling import Sampling
from agentrt.model.tiny import tiny_adapter, tiny_model
from benchmarks.soak.usage import usage
from tests.forks import in_child

LONG = Sampling(max_new_tokens=400)


def test_a_full_queue_refuses_the_next_turn_and_goes_on(open_engine):
    engine = open_engine(max_waiting=2)
    sessions = [engine.session() for _ in range(3)]
    short = Sampling(max_new_tokens=2)
    with engine._changed:  # the worker waits for the lock, so turns stay where they are
        turns = [session.turn("plan", [4, 5], short) for session in sessions[:2]]
        with pytest.raises(QueueFullError, match=r"2 turns wait .* try again later"):
            sessions[2].turn("plan", [6], short)
        assert engine.health().waiting == 2
    assert [len(turn.result.token_ids) for turn in turns] == [2, 2]
    assert len(sessions[2].turn("plan", [6], short).result.token_ids) == 2


def test_health_tells_what_an_engine_is_doing(open_engine):
    engine = open_engine()
    assert engine.health().ok
    session = engine.session()
    turn = session.turn("plan", [1, 2, 3], LONG)
    next(iter_once := iter(turn))
    busy = engine.health()
    assert (busy.status, busy.sessions, busy.waiting, busy.decoding) == ("ok", 1, 0, 1)
    assert busy.held_bytes > 0
    iter_once.close()
    engine.close()
    closed = engine.health()
    assert (closed.status, closed.ok, closed.sessions, closed.held_bytes) == ("closed", False, 0, 0)


def test_a_worker_that_died_is_told_by_health(open_engine, monkeypatch):
    monkeypatch.setattr(threading, "excepthook", lambda details: None)
    engine = open_engine()

    class BrokenError(Exception):
        pass

    def broken(sessions):
        raise BrokenError("no packing today")

    engine._scheduler.pack = broken
    turn = engine.session().turn("plan", [1, 2], LONG)
    with pytest.raises(EngineError, match="worker died"):
        turn.result  # noqa: B018
    engine._worker.join()
    health = engine.health()
    assert health.status == "failed"
    assert "no packing today" in health.error


@pytest.mark.parametrize("scheme", ["pre_lr_shared", "rebase_shared:lp"])
def test_drain_finishes_what_runs_and_takes_nothing_new(open_engine, scheme):
    engine = open_engine(scheme)
    session, idle = engine.session(), engine.session()
    turn = session.turn("plan", [1, 2, 3], Sampling(max_new_tokens=60))
    assert engine.drain(timeout_s=60)
    assert turn.done
    assert len(turn.result.token_ids) == 60
    assert engine.health().status == "draining"
    assert engine.health().owed_passes == 0
    for refused in (engine.session, lambda: idle.turn("plan", [1])):
        with pytest.raises(EngineClosedError, match="draining"):
            refused()
    engine.close()
    assert engine.drain()


def test_drain_tells_when_time_was_too_short(open_engine):
    engine = open_engine()
    turn = engine.session().turn("plan", [1, 2, 3], LONG)
    assert not engine.drain(timeout_s=0.0)
    turn.cancel()
    assert engine.drain(timeout_s=60)


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_after_a_fork_every_use_is_a_typed_error_and_the_parent_goes_on(open_engine):
    engine = open_engine()
    session = engine.session()
    running = session.turn("plan", [1, 2, 3], LONG)
    backbone = engine.backbone

    def child() -> str:
        uses = {
            "session": engine.session,
            "turn": lambda: session.turn("plan", [1]),
            "stats": engine.stats,
            "result": lambda: running.result,
            "tokens": lambda: list(running),
            "engine": lambda: Engine(backbone, engine.adapters, engine.scheme),
        }
        said = []
        for name, use in uses.items():
            try:
                use()
            except ForkedError:
                said.append(name)
        engine.close()
        engine.close()
        return ",".join([*said, engine.health().status])

    assert in_child(child) == "session,turn,stats,result,tokens,engine,forked"
    running.cancel()
    with pytest.raises(TurnCancelledError):
        running.result  # noqa: B018
    assert len(session.turn("plan", [5], Sampling(max_new_tokens=2)).result.token_ids) == 2


def test_bad_input_is_refused_by_type_and_the_engine_goes_on(open_engine):
    engine = open_engine()
    session = engine.session()
    with pytest.raises(UsageError, match="exceed the limit"):
        session.turn("plan", [1] * 20_000, Sampling(max_new_tokens=4))
    with pytest.raises(UsageError, match="unknown adapter 'plam'; this engine has: plan, action, reflect"):
        session.turn("plam", [1])
    running = session.turn("plan", [1, 2, 3], LONG)
    errors = []

    def second() -> None:
        try:
            session.turn("action", [4])
        except SessionBusyError as error:
            errors.append(str(error))

    thread = threading.Thread(target=second)
    thread.start()
    thread.join()
    assert [error.startswith("a turn of 'plan' is running in this session (") for error in errors] == [True]
    running.cancel()
    session.close()
    with pytest.raises(EngineClosedError, match="session is closed"):
        session.turn("plan", [1])
    assert len(engine.session().turn("plan", [1, 2], Sampling(max_new_tokens=3)).result.token_ids) == 3
    engine.close()
    with pytest.raises(EngineClosedError, match="open a new one"):
        engine.session()


def test_a_busy_session_refuses_everything_else_by_a_type_of_its_own_and_changes_nothing(open_engine):
    engine = open_engine()
    session = engine.session([1, 2])
    told = []

    def refused(use):
        with pytest.raises(SessionBusyError) as caught:
            use()
        told.append(str(caught.value))

    def append(generated):
        refused(lambda: session.append([9]))
        return len(generated) == 2

    with engine._changed:  # the worker waits for the lock, so the turn does not start
        turn = session.turn("plan", [3], Sampling(max_new_tokens=60, stop=append))
        for use in (
            lambda: session.turn("action", [4]),
            lambda: session.crop(0),
            session.fork,
            session.wait,
            session.settle,
        ):
            refused(use)
        assert engine.stats().sessions == 1, "a fork that is refused is not there"
    assert len(turn.result.token_ids) == 2
    fix = "; wait for turn.result or cancel it, or give each thread a session of its own"
    busy = "a turn of 'plan' is running in this session"
    assert told[:5] == [f"{busy} (waiting to start){fix}"] * 5
    assert told[5:] == [f"{busy} (tokens so far: {number}){fix}" for number in (1, 2)]
    assert session.trajectory.token_ids == [1, 2, 3, *turn.result.token_ids]
    neutral = session.turn("", [5], LONG)
    with pytest.raises(SessionBusyError, match="a turn with adapters off is running"):
        session.turn("plan", [6])
    neutral.cancel()
    assert not issubclass(SessionBusyError, EngineClosedError)


@pytest.mark.parametrize("scheme", ["pre_lr_shared", "rebase_shared:db", "rebase_shared:auto"])
def test_a_long_prefill_delays_a_running_token_by_at_most_one_chunk(open_engine, scheme):
    chunk = EngineConfig.chunk_tokens
    engine = open_engine(scheme, max_context=2400)
    running, arriving = engine.session(), engine.session()
    seen = []
    late = []

    def note(generated):
        stats = engine.stats()
        seen.append((stats.steps, stats.prefill_rows + stats.neutral_rows))
        if len(generated) == 3:
            late.append(arriving.turn("action", [7] * 2000, Sampling(max_new_tokens=2)))
        return False

    turn = running.turn("plan", [1, 2, 3], Sampling(max_new_tokens=30, stop=note))
    assert len(turn.result.token_ids) == 30
    assert len(late[0].result.token_ids) == 2
    between = [(b[0] - a[0], b[1] - a[1]) for a, b in itertools.pairwise(seen)]
    assert all(steps == 1 and rows <= chunk for steps, rows in between)
    assert sum(rows for _, rows in between) >= 2000 > 3 * chunk, "it was read while the other one wrote"


def test_a_hundred_engines_leave_no_memory_thread_or_file_behind(tmp_path):
    model = tiny_model()
    folder = tiny_adapter(model, tmp_path / "plan")

    def cycle() -> weakref.ref:
        backbone = Backbone(copy.deepcopy(model))
        with Engine.load(backbone, {"plan": folder}, "rebase_shared:lp", config=EngineConfig(ride_rows=0)) as engine:
            session = engine.session()
            assert len(session.turn("plan", [1, 2, 3], Sampling(max_new_tokens=3)).result.token_ids) == 3
        return weakref.ref(engine)

    cycle()
    before = usage()
    engines = [cycle() for _ in range(30)]
    third = usage()
    engines += [cycle() for _ in range(70)]
    gc.collect()
    deadline = time.monotonic() + 10
    while (after := usage()).threads > before.threads and time.monotonic() < deadline:
        time.sleep(0.05)  # a backbone's thread ends on its own once the backbone is gone
    assert [engine for engine in engines if engine() is not None] == []
    assert after.threads <= before.threads
    assert after.files <= before.files
    assert after.resident_bytes < third.resident_bytes + 8 * 2**20, "a model and its caches are a few MiB"


def test_a_closed_engine_leaves_no_cache_behind_on_a_backbone_that_stays(open_engine):
    engine = open_engine()
    engine.session().turn("plan", [1, 2, 3], Sampling(max_new_tokens=2)).result  # noqa: B018
    tensors = [weakref.ref(t) for p in engine._store.planes.values() for each in p.segments for t in each.values()]
    assert tensors
    engine.close()
    gc.collect()
    assert not [each for each in tensors if each() is not None]
