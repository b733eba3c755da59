"""Roles that write whole action lines: how they are read, repaired, refused and rendered."""

from pathlib import Path

from agentrt.config.team import Team
from agentrt.runtime.episode import Runtime
from agentrt.runtime.events import ToolFinished, TurnFinished
from agentrt.runtime.result import EpisodeResult
from agentrt.testing import ByteTokenizer, FakeTool, ScriptedEngine

TEAM = """
version: 1
preamble: Answer.
roles:
  agent: {adapter: none}
tools:
  Search: {use: offline.search}
flow:
  start: think
  nodes:
    think: {role: agent, emits: thought, next: act}
    act: {role: agent, emits: call, choices: [Search, Finish], next: {Finish: end, Search: use_tool}}
    use_tool: {tool: true, next: think}
limits: {max_steps: 6}
"""


def run(folder: Path, script: list[str], act: str = "", tokenizer: ByteTokenizer | None = None) -> EpisodeResult:
    (folder / "team.yaml").write_text(TEAM.replace("emits: call,", f"emits: call,{act}"))
    engine = ScriptedEngine(script, tokenizer=tokenizer)
    tools = {"Search": FakeTool("offline.search", {"jaws": "A film."})}
    with Runtime(Team.load(folder / "team.yaml"), engine=engine, tools=tools, out=folder / "runs") as rt:
        return rt.run("Who?", run_id="one")


def test_whole_lines_give_exactly_the_text_that_fields_give(tmp_path: Path) -> None:
    result = run(tmp_path, ["I look.", "Search[jaws]", "I know.", "Finish[A film]"], tokenizer=ByteTokenizer("]\n"))
    assert result.text == (
        "Answer.\nQuestion: Who?\nThought: I look.\nAction: Search[jaws]\nObservation: A film.\n"
        "Thought: I know.\nAction: Finish[A film]\n"
    )
    assert (result.status, result.answer, result.steps, result.parse_failures) == ("finished", "A film", 2, 0)
    assert [(action.action, action.argument) for action in result.actions] == [("Search", "jaws"), ("Finish", "A film")]
    assert result.repairs == {}
    written = [span.text for span in result.spans if span.kind == "call"]
    assert written == [" Search[jaws]\n", " Finish[A film]\n"]


def test_a_lenient_parser_repairs_counts_and_logs(tmp_path: Path) -> None:
    script = ["I look.", "search[jaws].", "I know.", "Let me Finish[A film"]
    result = run(tmp_path, script, " parser: lenient,")
    assert (result.status, result.answer, result.parse_failures) == ("finished", "A film", 0)
    assert result.repairs == {"case": 1, "behind": 1, "before": 1, "bracket": 1}
    assert result.event().repairs == result.repairs


def test_a_strict_parser_tells_the_model_and_goes_on(tmp_path: Path) -> None:
    result = run(tmp_path, ["I look.", "search[jaws].", "I know.", "Finish[A film]"])
    assert (
        "Action: search[jaws].\nObservation: Malformed: the argument does not end in ].\nThought: I know."
        in result.text
    )
    assert (result.status, result.steps, result.parse_failures) == ("finished", 2, 1)
    assert (result.actions[0].action, result.actions[0].argument) == ("", "search[jaws].")
    assert result.tool_health["calls"] == 0


def test_retry_tells_the_model_and_the_same_role_writes_again(tmp_path: Path) -> None:
    result = run(tmp_path, ["I know.", "Finsh[A]", "Finish[A film]"], " on_fail: retry,")
    assert (
        "Action: Finsh[A]\nObservation: Malformed: there is no action Finsh, write one of Search, Finish.\n"
        "Action: Finish[A film]\n"
    ) in result.text
    assert (result.status, result.answer, result.parse_failures, result.steps) == ("finished", "A film", 1, 2)


def test_after_a_retry_that_is_an_action_the_flow_goes_its_way(tmp_path: Path) -> None:
    script = ["I look.", "Saerch[jaws]", "Search[jaws]", "I know.", "Finish[A film]"]
    result = run(tmp_path, script, " on_fail: retry,")
    assert "Action: Search[jaws]\nObservation: A film.\nThought: I know." in result.text
    assert result.status == "finished"


def test_fail_ends_the_episode_with_its_reason_and_keeps_what_was_written(tmp_path: Path) -> None:
    result = run(tmp_path, ["I know.", "It is a film."], " on_fail: fail,")
    assert (result.status, result.answer, result.parse_failures) == ("malformed", None, 1)
    assert result.text.endswith("Action: It is a film.\n")


def test_a_role_that_does_nothing_is_told_so_and_it_counts_as_a_repair(tmp_path: Path) -> None:
    result = run(tmp_path, ["Done.", "None", "I know.", "Finish[A film]"], " parser: lenient,")
    assert "Observation: Malformed: no action was taken, write one of Search, Finish.\n" in result.text
    assert (result.status, result.parse_failures, result.repairs) == ("finished", 0, {"none": 1})


def test_the_same_malformed_line_again_and_again_is_a_loop(tmp_path: Path) -> None:
    result = run(tmp_path, ["I know.", "x", "x", "x"], " on_fail: retry,")
    assert (result.status, result.steps) == ("loop", 3)


def test_a_line_that_its_token_limit_cut_off_is_ended(tmp_path: Path) -> None:
    script = ["I look.", "Search[jaws and sharks]", "I know.", "Finish[A film]"]
    result = run(tmp_path, script, " max_new_tokens: 15,")
    assert "Action: Search[jaws an\nObservation: Malformed" in result.text
    assert result.text.endswith("Action: Finish[A film]\n")
    assert (result.status, result.answer, result.spans[-1].kind) == ("finished", "A film", "end")


def test_events_tell_repairs_and_malformed_lines(tmp_path: Path) -> None:
    from agentrt.runtime.runlog import read_run

    run(tmp_path, ["I look.", "hm", "I know.", "finish[A film]"], " parser: lenient,")
    events = read_run(tmp_path / "runs" / "one").events
    assert [event.repairs for event in events if isinstance(event, TurnFinished)] == [(), (), (), ("case",)]
    (told,) = [event for event in events if isinstance(event, ToolFinished)]
    assert (told.action, told.tool, told.miss, told.attempts) == ("", "", True, 0)
