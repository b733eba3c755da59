"""The runtime inside somebody's program: asyncio, cancellation, other adapters, drains, and a node of their graph."""

import asyncio
import threading
from contextlib import aclosing
from pathlib import Path
from typing import Any, TypedDict

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph

from agentrt.config.flow import Emits
from agentrt.errors import EngineClosedError, UsageError
from agentrt.runtime.episode import Runtime
from agentrt.runtime.events import RunFinished, Token, TurnFinished, parse_event
from agentrt.runtime.health import RuntimeHealth
from agentrt.runtime.options import CancelToken
from agentrt.runtime.result import EpisodeResult
from agentrt.testing import ScriptedEngine

from .conftest import MakeTeam
from .test_episode import GOLD, QUESTION
from .test_limits import LONG, RAMBLE


def endless(make_team: MakeTeam, corpus: Path) -> Runtime:
    """A runtime whose every thought takes many seconds."""
    script = {"thought": RAMBLE, "action": "Search", "argument": "x"}

    def write(adapter: str, field: Emits, so_far: str) -> Any:
        return script[field]

    return Runtime(make_team(LONG), engine=ScriptedEngine(write, max_context=10_000_000), corpus=corpus)


def test_arun_gives_what_run_gives(make_team: MakeTeam, corpus: Path) -> None:
    def result() -> EpisodeResult:
        with Runtime(make_team(), engine=ScriptedEngine(GOLD), corpus=corpus) as rt:
            return rt.run(QUESTION, run_id="one", seed=4)

    async def main() -> EpisodeResult:
        with Runtime(make_team(), engine=ScriptedEngine(GOLD), corpus=corpus) as rt:
            return await rt.arun(QUESTION, run_id="one", seed=4)

    alone, awaited = result(), asyncio.run(main())
    assert alone.model_dump(exclude={"timing"}) == awaited.model_dump(exclude={"timing"})
    assert EpisodeResult.model_validate_json(awaited.model_dump_json()) == awaited
    assert awaited.schema_version == 1


def test_astream_yields_the_events_and_leaves_the_loop_free(make_team: MakeTeam, corpus: Path) -> None:
    async def main() -> None:
        with Runtime(make_team(), engine=ScriptedEngine(GOLD), corpus=corpus) as rt:
            sync = [event.event for event in rt.stream(QUESTION, tokens=False)]
        with Runtime(make_team(), engine=ScriptedEngine(GOLD), corpus=corpus) as rt:
            seen = [event.event async for event in rt.astream(QUESTION, tokens=False)]
        assert seen == sync
        with endless(make_team, corpus) as rt:
            beats = 0

            async def beat() -> None:
                nonlocal beats
                while beats < 5:
                    await asyncio.sleep(0)
                    beats += 1

            async with aclosing(rt.astream("q")) as events:
                await asyncio.gather(beat(), anext(events))
            assert beats == 5

    asyncio.run(main())


def test_cancelling_the_task_cancels_the_run_and_waits_for_it(make_team: MakeTeam, corpus: Path) -> None:
    async def main() -> None:
        with endless(make_team, corpus) as rt:
            task = asyncio.create_task(rt.arun("q"))
            while not rt.health().runs:
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert rt.health().runs == 0

    asyncio.run(main())


def test_closing_the_async_iterator_cancels_the_run(make_team: MakeTeam, corpus: Path) -> None:
    async def main() -> None:
        with endless(make_team, corpus) as rt:
            async with aclosing(rt.astream("q")) as events:
                async for event in events:
                    if isinstance(event, Token):
                        break
            assert rt.health().runs == 0
            assert all(session.closed for session in rt.engine.sessions)  # type: ignore[attr-defined]  # scripted

    asyncio.run(main())


def test_a_token_cancels_every_run_that_has_it_and_no_other(make_team: MakeTeam, corpus: Path) -> None:
    with endless(make_team, corpus) as rt:
        token, results = CancelToken(), list[EpisodeResult]()
        threads = [threading.Thread(target=lambda: results.append(rt.run("q", cancel=token))) for _ in range(3)]
        for thread in threads:
            thread.start()
        other = rt.stream("q")
        next(event for event in other if isinstance(event, Token))
        token.cancel()
        for thread in threads:
            thread.join()
        assert [result.status for result in results] == ["cancelled"] * 3
        assert isinstance(next(other), Token)
        other.close()  # type: ignore[attr-defined]  # it is a generator
        assert rt.run("q", cancel=token).status == "cancelled"
        assert token.cancelled


def test_a_run_may_give_a_role_another_adapter(make_team: MakeTeam, corpus: Path) -> None:
    wrote: list[str] = []

    def write(adapter: str, field: Emits, so_far: str) -> str:
        wrote.append(adapter)
        return {"thought": "So.", "action": "Finish", "argument": "yes", "verdict": "right"}[field]

    engine = ScriptedEngine(write, adapter_names=("plan", "action", "plan-v2"))
    with Runtime(make_team(), engine=engine, corpus=corpus) as rt:
        other = rt.run("q", adapters={"plan": "plan-v2", "action": ""})
        assert wrote == ["plan-v2", "plan-v2", "", "", ""]
        assert other.adapters == {"plan": "plan-v2", "action": ""}
        assert {(span.author, span.path) for span in other.spans if span.path is not None} == {
            ("plan", "plan-v2"),
            ("action", ""),
            ("reflect", ""),
        }
        rt.run("q")
        assert wrote[5:8] == ["plan", "plan", "action"], "the next run has the team's own again"
        with pytest.raises(UsageError, match="no adapter 'plan-v3' for role 'plan': did you mean 'plan-v2'"):
            rt.run("q", adapters={"plan": "plan-v3"})
        with pytest.raises(UsageError, match="no role 'plna': did you mean 'plan'"):
            rt.run("q", adapters={"plna": "plan"})
        assert rt.run("q").status == "finished"


def test_close_cancels_what_runs_and_waits_for_it(make_team: MakeTeam, corpus: Path) -> None:
    rt = endless(make_team, corpus)
    events = rt.stream("q")
    next(event for event in events if isinstance(event, Token))
    engine = rt.engine
    assert (rt.health().status, rt.health().runs) == ("ok", 1)
    rt.close()
    rt.close()
    assert rt.health() == RuntimeHealth(status="closed", runs=0, engine=None)
    last = list(events)[-1]
    assert isinstance(last, RunFinished)
    assert last.status == "cancelled"
    assert engine.health().sessions == 0
    with pytest.raises(EngineClosedError, match="the runtime was closed"):
        rt.run("q")


def test_drain_finishes_what_runs_and_takes_nothing_new(make_team: MakeTeam, corpus: Path) -> None:
    reached, go_on = threading.Event(), threading.Event()

    def write(adapter: str, field: Emits, so_far: str) -> str:
        reached.set()
        assert go_on.wait(60)
        return {"thought": "So.", "action": "Finish", "argument": "yes", "verdict": "right"}[field]

    with Runtime(make_team(), engine=ScriptedEngine(write), corpus=corpus) as rt:
        results = list[EpisodeResult]()
        thread = threading.Thread(target=lambda: results.append(rt.run("q")))
        thread.start()
        assert reached.wait(60)
        assert not rt.drain(timeout_s=0.01)
        assert (rt.health().status, rt.health().runs) == ("draining", 1)
        with pytest.raises(EngineClosedError, match="draining"):
            rt.run("q")
        go_on.set()
        assert rt.drain(timeout_s=60)
        thread.join()
        assert results[0].status == "finished"


class Parent(TypedDict, total=False):
    topic: str
    question: str
    answer: str | None
    notes: list[str]


def parent(rt: Runtime) -> Any:
    """A user's graph with the runtime's as a node."""

    def ask(state: Parent) -> Parent:
        return {"question": f"Where was {state['topic']} born?"}

    def note(state: Parent) -> Parent:
        return {"notes": [f"{state['topic']}: {state['answer']}"]}

    graph = StateGraph(Parent)
    graph.add_node("ask", ask)
    graph.add_node("research", rt.graph)
    graph.add_node("note", note)
    for before, after in ((START, "ask"), ("ask", "research"), ("research", "note"), ("note", END)):
        graph.add_edge(before, after)
    return graph.compile(checkpointer=InMemorySaver())


def test_the_graph_is_a_node_of_somebodys_own_graph(make_team: MakeTeam, corpus: Path) -> None:
    config: Any = {"configurable": {"thread_id": "1"}, "recursion_limit": 5}
    with Runtime(make_team(), engine=ScriptedEngine(GOLD), corpus=corpus) as rt:
        graph = parent(rt)
        told, last = list[Any](), dict[str, Any]()
        for namespace, kind, value in graph.stream(
            {"topic": "the director of Jaws"}, config, stream_mode=["custom", "values"], subgraphs=True
        ):
            if kind == "custom":
                told.append(parse_event(value))
            elif not namespace:
                last = value
        assert last == {
            "topic": "the director of Jaws",
            "question": QUESTION,
            "answer": "Cincinnati",
            "notes": ["the director of Jaws: Cincinnati"],
        }
        assert [event.text for event in told if isinstance(event, TurnFinished)] == GOLD
        assert graph.get_state(config).values == last


def test_the_graph_alone_gives_answer_status_and_result(make_team: MakeTeam, corpus: Path) -> None:
    with Runtime(make_team(), engine=ScriptedEngine(GOLD * 2), corpus=corpus) as rt:
        sync = rt.graph.invoke({"question": QUESTION, "seed": 3})
        awaited = asyncio.run(rt.graph.ainvoke({"question": QUESTION, "seed": 3}))
    for output in (sync, awaited):
        assert set(output) == {"answer", "status", "result"}
        assert (output["answer"], output["status"]) == ("Cincinnati", "finished")
        result = EpisodeResult.model_validate(output["result"])
        assert (result.seed, result.question, result.answer) == (3, QUESTION, "Cincinnati")


def test_cancelling_a_graphs_task_cancels_the_episode(make_team: MakeTeam, corpus: Path) -> None:
    async def main() -> None:
        with endless(make_team, corpus) as rt:
            task = asyncio.create_task(rt.graph.ainvoke({"question": "q"}))
            while not rt.health().runs:
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert rt.health().runs == 0

    asyncio.run(main())
