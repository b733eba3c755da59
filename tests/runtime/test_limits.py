"""Every way in which an episode stops by itself, and that nothing it wrote is lost."""

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from agentrt.config.flow import Emits
from agentrt.config.sections import LimitsConfig
from agentrt.runtime.episode import Runtime
from agentrt.runtime.events import RunFinished
from agentrt.runtime.limits import loops
from agentrt.runtime.runlog import read_run
from agentrt.testing import FakeTool, ScriptedEngine, ScriptError
from agentrt_tools import Json, ToolFailed, ToolResult

from .conftest import MakeTeam

RAMBLE = [ord("x")] * 1_000_000
"""A thought that takes many seconds."""
LONG = ("adapters/plan}", "adapters/plan, sampling: {max_new_tokens: 1000000}}")


def searching(adapter: str, field: Emits, so_far: str) -> str:
    """Thinks, searches for something new, and never stops."""
    return {"thought": "On.", "action": "Search", "argument": f"word{so_far.count('Search[')}"}[field]


def repeating(adapter: str, field: Emits, so_far: str) -> str:
    return {"thought": "On.", "action": "Search", "argument": "same"}[field]


def test_max_steps_counts_actions_and_stops_before_the_next_thought(make_team: MakeTeam, corpus: Path) -> None:
    with Runtime(make_team(), engine=ScriptedEngine(searching), corpus=corpus) as rt:
        result = rt.run("q")
    assert (result.status, result.answer, result.steps) == ("limit:steps", None, 6)
    assert len(result.actions) == 6
    assert result.spans[-1].kind == "observation"


def test_an_answer_on_the_last_step_is_still_judged(make_team: MakeTeam, corpus: Path) -> None:
    team = make_team(("max_steps: 6", "max_steps: 1"))
    with Runtime(team, engine=ScriptedEngine(["A.", "Finish", "yes", "So.", "right"]), corpus=corpus) as rt:
        assert rt.run("q").status == "finished"
    with Runtime(team, engine=ScriptedEngine(["A.", "Finish", "yes", "So.", "wrong"]), corpus=corpus) as rt:
        result = rt.run("q")
    assert (result.status, result.answer) == ("limit:steps", "yes")


@pytest.mark.parametrize(("in_file", "engine_limit"), [("max_context: 400", 10_000), ("max_steps: 50", 400)])
def test_max_context_is_never_exceeded(make_team: MakeTeam, corpus: Path, in_file: str, engine_limit: int) -> None:
    engine = ScriptedEngine(searching, max_context=engine_limit)
    with Runtime(make_team(("max_steps: 6", in_file)), engine=engine, corpus=corpus) as rt:
        result = rt.run("q")
    assert result.status == "limit:context"
    assert 200 < len(result.token_ids) <= 400


def test_the_same_call_with_nothing_new_is_a_loop(make_team: MakeTeam, corpus: Path) -> None:
    with Runtime(make_team(), engine=ScriptedEngine(repeating), corpus=corpus) as rt:
        result = rt.run("q")
    assert (result.status, result.steps) == ("loop", 3)
    assert len({action.observation for action in result.actions}) == 1


def test_the_same_answer_again_and_again_is_a_loop(make_team: MakeTeam, corpus: Path) -> None:
    script = ["A.", "Finish", "yes", "Hm.", "wrong"] * 3
    with Runtime(make_team(), engine=ScriptedEngine(script), corpus=corpus) as rt:
        result = rt.run("q")
    assert (result.status, result.answer, result.steps) == ("loop", "yes", 3)


def test_paging_through_results_is_no_loop(make_team: MakeTeam, corpus: Path) -> None:
    pages = ["(Result 1 / 3) a", "(Result 2 / 3) b", "(Result 3 / 3) c"]

    class Pager(FakeTool):
        def __call__(self, argument: str, state: Mapping[str, Json], *, question: str = "") -> ToolResult:
            self.calls.append(argument)
            return ToolResult(pages[len(self.calls) - 1], state=dict(state))

    script = [*["On.", "Lookup", "x"] * 3, "A.", "Finish", "yes", "So.", "right"]
    tools = {"Lookup": Pager("fake.lookup")}
    with Runtime(make_team(), engine=ScriptedEngine(script), corpus=corpus, tools=tools) as rt:
        assert rt.run("q").status == "finished"


def test_too_many_tool_errors_end_the_run(make_team: MakeTeam, corpus: Path) -> None:
    failure = ToolFailed("quota", "no credits left")
    tools = {"Search": FakeTool("fake.search", {f"word{n}": failure for n in range(9)})}
    team = make_team(("max_steps: 6", "max_tool_errors: 1"))
    with Runtime(team, engine=ScriptedEngine(searching), corpus=corpus, tools=tools) as rt:
        result = rt.run("q")
    assert (result.status, result.steps) == ("limit:tool_errors", 2)
    assert result.tool_health["failures"] == {"quota": 2}


def test_time_s_ends_a_turn_in_flight_and_keeps_what_was_before(make_team: MakeTeam, corpus: Path) -> None:
    def rambling(adapter: str, field: Emits, so_far: str) -> str | Sequence[int]:
        return RAMBLE if so_far.count("Thought:") == 2 else searching(adapter, field, so_far)

    with Runtime(
        make_team(("max_steps: 6", "time_s: 0.3"), LONG), engine=ScriptedEngine(rambling), corpus=corpus
    ) as rt:
        result = rt.run("q")
    assert result.status == "limit:time"
    assert len(result.actions) == 1
    assert result.spans[-1].text == "Thought:"


def test_time_s_does_not_wait_for_a_tool_that_hangs(make_team: MakeTeam, corpus: Path) -> None:
    release = threading.Event()

    class Hanging(FakeTool):
        def __call__(self, argument: str, state: Mapping[str, Json], *, question: str = "") -> ToolResult:
            release.wait(60)
            return ToolResult("late", state=dict(state))

    team = make_team(("max_steps: 6", "time_s: 0.2"))
    tools = {"Search": Hanging("fake.search")}
    with Runtime(team, engine=ScriptedEngine(searching), corpus=corpus, tools=tools) as rt:
        result = rt.run("q")
    release.set()
    assert result.status == "limit:time"
    assert result.timing.total_s < 10


def test_closing_the_iterator_cancels_the_turn_and_the_log_says_so(
    make_team: MakeTeam, corpus: Path, tmp_path: Path
) -> None:
    engine = ScriptedEngine([RAMBLE])
    with Runtime(make_team(LONG), engine=engine, corpus=corpus, out=tmp_path / "runs") as rt:
        events = rt.stream("q", run_id="one")
        next(event for event in events if event.event == "token")
        events.close()  # type: ignore[attr-defined]  # it is a generator
    assert engine.sessions[0].closed
    assert not any(thread.name.startswith("agentrt-run") for thread in threading.enumerate())
    last = read_run(tmp_path / "runs" / "one").events[-1]
    assert isinstance(last, RunFinished)
    assert last.status == "cancelled"
    assert engine.sessions[0].trajectory.spans[-1].kind == "label"


def test_a_broken_run_raises_after_its_last_event_and_keeps_its_trajectory(
    make_team: MakeTeam, corpus: Path, tmp_path: Path
) -> None:
    with Runtime(make_team(), engine=ScriptedEngine(["A."]), corpus=corpus, out=tmp_path / "runs") as rt:
        events = rt.stream("q", run_id="one", tokens=False)
        seen = []
        with pytest.raises(ScriptError, match="no text left"):
            seen.extend(events)
        again = ScriptedEngine(["A.", "Finish", "yes", "So.", "right"])
        assert Runtime(make_team(), engine=again, corpus=corpus).run("q").status == "finished"
    log = read_run(tmp_path / "runs" / "one").events
    assert isinstance(log[-1], RunFinished)
    assert (log[-1].status, log[-1].steps) == ("failed", 0)
    assert "no text left" in (log[-1].error or "")
    assert " A." in (tmp_path / "runs" / "one" / "result.json").read_text()


@pytest.mark.parametrize(
    ("calls", "ends"),
    [
        ("AAA", True),
        ("AA", False),
        ("ABAB", True),
        ("ABBA", False),
        ("XABAB", True),
        ("ABCABC", True),  # three in a row that told nothing new
        ("ABCAB", False),
        ("ABCD", False),
    ],
)
def test_calls_that_bring_nothing_new_are_a_loop(calls: str, ends: bool) -> None:
    made = [["Search", name, f"about {name}"] for name in calls]
    assert (loops(LimitsConfig(), made) == "loop") == ends
    assert all(loops(LimitsConfig(), made[:length]) is None for length in range(1, len(made)))


def test_tools_that_tell_the_same_to_other_questions_are_a_loop() -> None:
    made = [["Search", f"word{number}", "No results."] for number in range(4)]
    assert loops(LimitsConfig(), made[:3]) is None
    assert loops(LimitsConfig(), made) == "loop"


@pytest.mark.parametrize(
    ("limit", "status", "turns"), [("max_turns: 5", "limit:turns", 5), ("max_tokens: 9", "limit:tokens", 2)]
)
def test_turns_and_generated_tokens_are_limited(
    make_team: MakeTeam, corpus: Path, limit: str, status: str, turns: int
) -> None:
    with Runtime(make_team(("max_steps: 6", limit)), engine=ScriptedEngine(searching), corpus=corpus) as rt:
        result = rt.run("q")
    assert result.status == status
    assert sum(usage.turns for usage in result.usage.values()) == turns
    assert [span.path is not None for span in result.spans].count(True) == turns


@pytest.mark.parametrize(
    ("limit", "forced_by"),
    [
        ("max_steps: 1", "limit:steps"),
        ("max_turns: 2", "limit:turns"),  # behind the name of an action
        ("max_turns: 1", "limit:turns"),
        ("max_tokens: 1", "limit:tokens"),
        ("max_steps: 6", "loop"),
    ],
)
def test_a_forced_answer_is_written_and_labelled(make_team: MakeTeam, corpus: Path, limit: str, forced_by: str) -> None:
    def writing(adapter: str, field: Emits, so_far: str) -> str:
        if field == "argument" and so_far.endswith("\nAction: Finish["):
            return "yes"
        return repeating(adapter, field, so_far)

    team = make_team(("max_steps: 6", f"{limit}, on_limit: force_answer"))
    with Runtime(team, engine=ScriptedEngine(writing), corpus=corpus) as rt:
        result = rt.run("q")
    assert (result.status, result.forced_by, result.answer) == ("forced", forced_by, "yes")
    assert result.text.endswith("\nAction: Finish[ yes]")
    assert result.actions[-1].action == "Finish"


def test_without_room_for_a_forced_answer_the_limit_stands(make_team: MakeTeam, corpus: Path) -> None:
    team = make_team(("max_steps: 6", "max_context: 120, on_limit: force_answer"))
    with Runtime(team, engine=ScriptedEngine(searching), corpus=corpus) as rt:
        result = rt.run("q")
    assert (result.status, result.forced_by, result.answer) == ("limit:context", None, None)
