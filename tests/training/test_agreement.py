"""A team against files that adapters were trained on: what differs is a problem, what is lacking a note."""

import json
from pathlib import Path
from typing import Any

import pytest

from agentrt.config.team import Override, Team
from agentrt.errors import DataError
from agentrt.runtime.episode import Runtime
from agentrt.testing import ByteTokenizer, FakeTool, ScriptedEngine
from agentrt.training.agreement import Agreement, compare
from agentrt.training.texts import read_training_file

TEAM = """\
version: 1
dialect: {lead: " "}
preamble: Answer in steps.
roles:
  agent: {adapter: none}
tools:
  Search: {use: offline.search}
  Lookup: {use: offline.lookup}
flow:
  start: think
  nodes:
    think: {role: agent, emits: thought, next: act}
    act: {role: agent, emits: call, choices: [Search, Lookup, Finish], next: {Finish: end, default: use}}
    use: {tool: true, next: think}
"""

TEXT = """\
Answer in steps.
Question: Who made Jaws?
Thought: I look.
Action: Search[Jaws]
Observation: Jaws is a film.
Thought: I look closer.
Action: Lookup[made]
Observation: (Result 1 / 2) It was made by Spielberg.
Thought: I know.
Action: Finish[Spielberg]
"""


@pytest.fixture
def team(tmp_path: Path) -> Team:
    (tmp_path / "team.yaml").write_text(TEAM)
    return Team.load(tmp_path / "team.yaml")


def held_against(team: Team, tmp_path: Path, *rows: Any) -> Agreement:
    file = tmp_path / "data.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return compare(team, read_training_file(file, ByteTokenizer()))


@pytest.mark.parametrize(
    "row",
    [
        {"text": TEXT},
        {"input": TEXT[:40], "output": TEXT[40:], "id": 3},
        {"messages": [{"role": "user", "content": TEXT}]},
        {"token_ids": list(TEXT.encode())},
        TEXT,
    ],
    ids=["text", "a pair", "messages", "token ids", "a string"],
)
def test_data_in_the_teams_own_bytes_agrees(team: Team, tmp_path: Path, row: Any) -> None:
    assert held_against(team, tmp_path, row, row) == Agreement([], [])


@pytest.mark.parametrize(
    ("old", "new", "place", "says"),
    [
        ("Action:", "Aciton:", (2, 10), "not 'Action:', but 'Aciton:' (6 times, first in"),
        ("Observation:", "Obversation:", (2, 10), "not 'Observation:', but 'Obversation:' (4 times"),
        ("Action: Search", "Aciton: Search", (2, 10), "4 times 'Action:', and 'Aciton:' (2 times"),
        ("Thought: ", "", (2, 10), "never has the label 'Thought:'"),
        ("Question: ", "Question:", (2, 17), "behind 'Question:' the training data does not go on with the lead ' '"),
        ("Search[", "BingSearch[", (6, 1), "calls 'BingSearch' (2 of 6 times, first in"),
        ("[", "(", (2, 10), "opens arguments with '(' (6 times), not '['"),
        ("Answer in steps.", "Answer in words.", (3, 11), "from character 11 on with 'words.', not 'steps.'"),
        ("Answer in steps.\n", "", (3, 11), "begins otherwise (2 of 2 texts"),
        ("1 / 2", "1/2", (8, 17), "offline.lookup words observations as react, the training data as autoact (2 texts"),
    ],
)
def test_what_differs_is_told_at_its_place_in_the_team_file(
    team: Team, tmp_path: Path, old: str, new: str, place: tuple[int, int], says: str
) -> None:
    assert old in TEXT
    row = {"text": TEXT.replace(old, new)}
    found = held_against(team, tmp_path, row, row).problems
    assert found, "nothing was found"
    assert found[0].file == team.source
    assert (found[0].line, found[0].column) == place
    assert says in found[0].message
    assert "train again" in found[0].message
    assert len(found) == 1


def test_the_first_place_of_a_difference_is_named(team: Team, tmp_path: Path) -> None:
    rows = [{"text": TEXT}, {"text": TEXT.replace("Action:", "Aciton:")}]
    (found,) = held_against(team, tmp_path, *rows).problems
    assert f"first in {tmp_path / 'data.jsonl'}:2)" in found.message


def test_a_slip_in_many_calls_is_no_tool(team: Team, tmp_path: Path) -> None:
    rows = [{"text": TEXT}] * 99 + [{"text": TEXT.replace("Search[", "Serch[")}]
    assert held_against(team, tmp_path, *rows).problems == []


def test_rows_of_fields_tell_calls_and_wordings_only(team: Team, tmp_path: Path) -> None:
    turns = [
        {"role": "plan", "action": "BingSearch", "action_input": "x", "well_formed": True},
        {"role": "plan", "action": "let me see", "action_input": "", "well_formed": False},
        {
            "role": "plan",
            "action": "Finish",
            "action_input": "42",
            "observation": "(Result 1/3) It is.",
            "well_formed": True,
        },
    ]
    problems, notes = held_against(team, tmp_path, {"turns": turns}, {"turns": turns})
    assert ["calls 'BingSearch'" in problems[0].message, "as autoact" in problems[1].message] == [True, True]
    assert notes[:2] == ["the training data never calls Search", "the training data never calls Lookup"]
    assert "labels, markers and preamble were not compared" in notes[2]


def test_what_the_runtime_renders_agrees_with_its_team(tmp_path: Path) -> None:
    """The shipped team, played as training data is made."""
    free = Override(("flow", "nodes", "argue", "constrain"), {}, "the test")
    team = Team.load("search", overrides=[free], need_adapters=False)
    script = ["I look.", "Search", "Jaws", "I read.", "Retrieve", "Jaws", "I know.", "Finish", "yes", "It is.", "right"]
    tools = {name: FakeTool(name) for name in team.tools}
    with Runtime(team, engine=ScriptedEngine(script), tools=tools) as runtime:
        row = {"token_ids": runtime.run("Is Jaws a film?").token_ids}
    problems, notes = held_against(team, tmp_path, row)
    assert (problems, notes) == ([], ["the training data never calls Lookup"])


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"token_ids": [1, -2]}, "data.jsonl:1: token_ids are no list of token ids"),
        ({"turns": [3]}, "data.jsonl:1: a turn is 3, not an object"),
        ({"n": 3}, "no text to compare"),
    ],
)
def test_files_without_anything_to_compare_are_named(team: Team, tmp_path: Path, row: Any, says: str) -> None:
    with pytest.raises(DataError, match=says):
        held_against(team, tmp_path, row)


def test_token_ids_need_the_tokenizer(tmp_path: Path) -> None:
    (tmp_path / "data.jsonl").write_text(json.dumps({"token_ids": [1]}))
    with pytest.raises(DataError, match="is not on this machine"):
        read_training_file(tmp_path / "data.jsonl", None)


@pytest.mark.parametrize("name", ["autoact_70b_hotpotqa", "autoact_13b_hotpotqa"])
def test_the_released_trajectories_call_tools_that_a_search_team_lacks(shared_data: Path, name: str) -> None:
    file = shared_data / "trajectories" / f"{name}.jsonl"
    found = compare(Team.load("search", need_adapters=False), read_training_file(file, None)).problems
    assert ["calls 'BingSearch'" in problem.message for problem in found][:1] == [True]
    assert any("offline.lookup words observations as react" in problem.message for problem in found)
