"""A cancel ends a turn with the step in flight, be it one token or one chunk: every row the engine runs is counted."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path

import pytest

from agentrt.engine import Turn
from agentrt.errors import TurnCancelledError
from agentrt.model.sampling import Sampling
from agentrt.runtime.episode import Runtime
from agentrt.runtime.events import TurnStarted
from agentrt.runtime.options import CancelToken
from agentrt.testing import FakeTool
from tests.crew import short_team, tiny_engine
from tests.gates import CHUNK, GatedBackbone, gated

SCHEMES = ["pre_lr_shared", "rebase_shared:auto", "non_shared"]
LONG = Sampling(max_new_tokens=100)
QUESTION = "Where was she born?"

every_scheme = pytest.mark.parametrize("scheme", SCHEMES)
every_phase = pytest.mark.parametrize("phase", ["prefill", "decode"])


def cancel(turn: Turn, backbone: GatedBackbone) -> None:
    assert backbone.held.wait(100)
    turn.cancel()


def close_iterator(turn: Turn, backbone: GatedBackbone) -> None:
    tokens = iter(turn)
    assert backbone.held.wait(100)
    tokens.close()


@every_scheme
@every_phase
@pytest.mark.parametrize("way", [cancel, close_iterator])
def test_a_cancelled_turn_runs_no_row_behind_the_step_in_flight(
    tmp_path: Path, scheme: str, phase: str, way: Callable[[Turn, GatedBackbone], None]
) -> None:
    with gated(tmp_path, scheme) as (engine, backbone):
        session = engine.session([7] * 5)
        session.turn("plan", [1, 2], Sampling(max_new_tokens=3)).result  # noqa: B018 - waits
        session.settle()
        before = list(session.trajectory.token_ids)
        backbone.hold("action", phase)
        turn = session.turn("action", [3] * 200, LONG)
        way(turn, backbone)
        with pytest.raises(TurnCancelledError):
            turn.result  # noqa: B018
        assert engine.drain(timeout_s=60), "whatever would still be run has been"
        assert backbone.rows_after == {}
        assert 0 < backbone.rows_held <= CHUNK
        assert session.trajectory.token_ids == before


@every_scheme
@every_phase
def test_a_cancelled_turn_runs_no_row_while_its_company_goes_on(tmp_path: Path, scheme: str, phase: str) -> None:
    with gated(tmp_path, scheme) as (engine, backbone):
        company, session = engine.session(), engine.session()
        going_on = company.turn("plan", [1, 2], LONG)
        next(tokens := iter(going_on))
        backbone.hold("action", phase)
        turn = session.turn("action", [3] * 200, LONG)
        cancel(turn, backbone)
        with pytest.raises(TurnCancelledError):
            turn.result  # noqa: B018
        assert len(list(tokens)) == 99
        assert backbone.rows_after["plan"] > 0
        assert "action" not in backbone.rows_after


def by_token(runtime: Runtime, backbone: GatedBackbone) -> None:
    token, statuses = CancelToken(), list[str]()
    thread = threading.Thread(target=lambda: statuses.append(runtime.run(QUESTION, cancel=token).status))
    thread.start()
    assert backbone.held.wait(100)
    token.cancel()
    thread.join()
    assert statuses == ["cancelled"]


def by_closing_the_stream(runtime: Runtime, backbone: GatedBackbone) -> None:
    events = runtime.stream(QUESTION)
    next(event for event in events if isinstance(event, TurnStarted))
    assert backbone.held.wait(100)
    events.close()


def by_closing_the_async_stream(runtime: Runtime, backbone: GatedBackbone) -> None:
    async def main() -> None:
        async with aclosing(runtime.astream(QUESTION)) as events:
            async for event in events:
                if isinstance(event, TurnStarted):
                    break
            assert await asyncio.to_thread(backbone.held.wait, 100)

    asyncio.run(main())


def by_cancelling_the_task(runtime: Runtime, backbone: GatedBackbone) -> None:
    async def main() -> None:
        task = asyncio.create_task(runtime.arun(QUESTION))
        assert await asyncio.to_thread(backbone.held.wait, 100)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())


@every_phase
@pytest.mark.parametrize("way", [by_token, by_closing_the_stream, by_closing_the_async_stream, by_cancelling_the_task])
@pytest.mark.parametrize("scheme", ["rebase_shared:auto"])
def test_a_cancelled_run_ends_with_the_step_in_flight(
    tmp_path: Path, scheme: str, phase: str, way: Callable[[Runtime, GatedBackbone], None]
) -> None:
    team = short_team()
    tools = {name: FakeTool(name) for name in team.tools}
    with gated(tmp_path, scheme) as (engine, backbone), Runtime(team, engine=engine, tools=tools) as runtime:
        backbone.hold("plan", phase)
        way(runtime, backbone)
        assert (runtime.health().runs, engine.health().sessions) == (0, 0)
        assert backbone.rows_after == {}
        assert 0 < backbone.rows_held <= CHUNK


def test_closing_an_iterator_that_was_never_asked_for_a_token_cancels_too(tmp_path: Path) -> None:
    with tiny_engine(tmp_path, "pre_lr_shared") as engine:
        session = engine.session()
        with engine._changed:  # the worker waits for the lock, so no token comes
            turn = session.turn("plan", [1, 2], LONG)
            iter(turn).close()
        with pytest.raises(TurnCancelledError):
            turn.result  # noqa: B018
        assert session.trajectory.token_ids == []
