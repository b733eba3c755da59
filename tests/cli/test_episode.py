"""What a run prints, for people and as JSON, with a scripted engine in place of a model."""

import json
from pathlib import Path

import pytest
from rich.color import ColorSystem

from agentrt.cli.episode import Asked, play
from agentrt.cli.output import Output
from agentrt.config.team import Override, Team
from agentrt.questions.datasets import Question
from agentrt.runtime.episode import Runtime
from agentrt.runtime.events import parse_event
from agentrt.testing import FakeTool, ScriptedEngine
from agentrt_tools import ToolFailed, ToolResult

QUESTION = Question("q1", "mini", "eval", "easy", "bridge", "Where was the painter born?", "Delft")
ANSWERED = [
    *("I look for the painter.", "Search", "painter"),
    *("I know it now.", "Finish", "Delft"),
    *("It is in the text.", "right"),
]


def runtime(
    script: list[str],
    *,
    answer: str | ToolFailed = "",
    overrides: dict[str, object] | None = None,
    out: Path | None = None,
) -> Runtime:
    found = ToolResult(answer, titles=("Painter",)) if isinstance(answer, str) else answer
    changes = [Override(tuple(name.split(".")), value, name) for name, value in (overrides or {}).items()]
    tools = {
        "Search": FakeTool("offline.search", {"painter": found}),
        "Retrieve": FakeTool("offline.page"),
        "Lookup": FakeTool("offline.lookup"),
    }
    team = Team.load("search", overrides=changes, need_adapters=False)
    return Runtime(team, engine=ScriptedEngine(script), tools=tools, out=out)


def watch(rt: Runtime, question: str | Question, out: Output, *, tokens: bool) -> int:
    asked = Asked.of(question)
    events = rt.stream(asked.text, tokens=tokens, score=asked.scorer)
    return play(rt.team, asked, events, out, folder=Path())


def test_people_see_turns_answer_score_and_table(capsys: pytest.CaptureFixture[str]) -> None:
    with runtime(ANSWERED, answer="The painter was born in Delft.") as rt:
        code = watch(rt, QUESTION, Output(), tokens=True)
    text = capsys.readouterr().out
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert code == 0
    assert lines[0] == "Question: Where was the painter born?"
    assert "1 plan thought I look for the painter." in lines
    assert "plan action Search" in lines
    assert "action argument painter" in lines
    assert "Search observes The painter was born in Delft." in lines
    assert "2 plan thought I know it now." in lines
    assert "action argument Delft" in lines
    assert "reflect verdict right" in lines
    assert "Answer: Delft" in lines
    assert "right: the answer is Delft (F1 1.00)" in lines
    assert "role turns reused recomputed rebuilt generated TTFT tokens/s KV" in lines
    assert [line.split()[:2] for line in lines if line.startswith(("plan 4", "action 2", "reflect 2"))] == [
        ["plan", "4"],
        ["action", "2"],
        ["reflect", "2"],
    ]
    assert "tools: 1 calls, 0 misses, 0 retries, 0 failed" in lines


def test_streamed_or_not_the_text_is_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    shown = []
    for tokens in (True, False):
        with runtime(ANSWERED, answer="The painter was born in Delft.") as rt:
            watch(rt, QUESTION, Output(), tokens=tokens)
        lines = capsys.readouterr().out.splitlines()
        shown.append([line for line in lines if "run " not in line and " s: model" not in line])
    assert shown[0] == shown[1]


def test_json_is_one_event_a_line_and_people_read_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    with runtime(ANSWERED, answer="The painter was born in Delft.") as rt:
        watch(rt, QUESTION, Output(as_json=True), tokens=False)
    out, err = capsys.readouterr()
    events = [parse_event(line) for line in out.splitlines()]
    assert {event.event for event in events} == {
        *("run_started", "turn_started", "turn_finished", "tool_called", "tool_finished", "run_finished")
    }
    last = json.loads(out.splitlines()[-1])
    assert (last["event"], last["status"], last["answer"]) == ("run_finished", "finished", "Delft")
    assert last["score"]["correct"] is True
    assert {"steps", "usage", "timing", "tool_health", "run_id", "seed", "scheme"} <= last.keys()
    assert "Answer: Delft" in err


def test_a_question_without_gold_answer_has_no_score(capsys: pytest.CaptureFixture[str]) -> None:
    with runtime(ANSWERED, answer="Born in Delft.") as rt:
        assert watch(rt, QUESTION.text, Output(as_json=True), tokens=False) == 0
    assert "score" not in json.loads(capsys.readouterr().out.splitlines()[-1])


def test_quiet_leaves_the_answer_only(capsys: pytest.CaptureFixture[str]) -> None:
    with runtime(ANSWERED, answer="Born in Delft.") as rt:
        watch(rt, QUESTION.text, Output(quiet=True), tokens=False)
    assert capsys.readouterr().out == "Answer: Delft\n"


def test_a_limit_ends_with_3_and_the_reason(capsys: pytest.CaptureFixture[str]) -> None:
    script = ["I look.", "Search", "painter", "I look on.", "Search", "born"]
    with runtime(script, answer="A painter.", overrides={"limits.max_steps": 2}) as rt:
        assert watch(rt, QUESTION, Output(), tokens=False) == 3
    text = capsys.readouterr().out
    assert "No answer: limit:steps" in text
    assert "wrong: the answer is Delft" in text


def test_failing_tools_end_with_4_and_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    failed = ToolFailed("auth", "the key was refused")
    with runtime(["I look.", "Search", "painter"], answer=failed, overrides={"limits.max_tool_errors": 0}) as rt:
        assert watch(rt, QUESTION, Output(), tokens=False) == 4
    text = capsys.readouterr().out
    assert "FAILED (auth)" in text
    assert "tools FAILED in 1 of 1 calls (1 auth)" in text
    assert "Search: auth: the key was refused" in text


def test_a_failed_tool_is_told_in_red_even_where_there_is_an_answer_and_quiet_was_asked_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    failed = ToolFailed("timeout", "no answer in 8 s")
    with runtime(ANSWERED, answer=failed, overrides={"flow.nodes.argue.constrain": {}}) as rt:
        out = Output(quiet=True)
        out.console._force_terminal = True
        out.console._color_system = ColorSystem.STANDARD
        assert watch(rt, "Where?", out, tokens=False) == 0
    text = capsys.readouterr().out
    assert "\x1b[1;31mtools FAILED in 1 of 1 calls (1 timeout)" in text


def test_no_answer_for_want_of_a_key_ends_with_4_before_the_limit_of_errors(
    capsys: pytest.CaptureFixture[str],
) -> None:
    script = ["I look.", "Search", "painter"]
    with runtime(script, answer=ToolFailed("quota", "no credits"), overrides={"limits.max_steps": 1}) as rt:
        assert watch(rt, QUESTION.text, Output(), tokens=False) == 4
    assert "No answer: limit:steps" in capsys.readouterr().out


@pytest.mark.parametrize("tokens", [True, False])
def test_what_models_and_services_write_does_not_reach_the_terminal_as_a_command(
    capsys: pytest.CaptureFixture[str], tokens: bool
) -> None:
    evil = "\x1b]52;c;ZXZpbA==\x07\x1b[2J\x9b2J"
    script = [f"I look{evil}.", *ANSWERED[1:]]
    free = {"flow.nodes.argue.constrain": {}}
    with runtime(script, answer=ToolFailed("bad_response", f"it says {evil}"), overrides=free) as rt:
        assert watch(rt, QUESTION, Output(), tokens=tokens) == 0
    text = capsys.readouterr().out
    assert "I look]52;c;ZXZpbA==[2J2J." in text
    assert "it says ]52;c;ZXZpbA== [2J 2J" in text
    assert all(char.isprintable() or char == "\n" for char in text)


def test_an_interruption_between_two_events_ends_json_with_run_finished(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Interrupted(Output):
        def raw(self, line: str) -> None:
            super().raw(line)
            if '"event":"turn_started"' in line:
                raise KeyboardInterrupt

    with runtime(ANSWERED, answer="Born in Delft.", out=tmp_path) as rt:
        asked = Asked.of("Where?")
        events = rt.stream(asked.text, run_id="one")
        with pytest.raises(KeyboardInterrupt, match=f"run one, so far in {tmp_path / 'one'}; go on with"):
            play(rt.team, asked, events, Interrupted(as_json=True), folder=tmp_path)
    first, second, last = map(json.loads, capsys.readouterr().out.splitlines())
    assert [first["event"], second["event"], last["event"]] == ["run_started", "turn_started", "run_finished"]
    assert last["run_id"] == "one"
