"""Recorded episodes become the runtime's own trajectories; rows of another dialect are named, and the rest is used."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentrt.config.team import Override, Team
from agentrt.errors import DataError, UsageError
from agentrt.runtime.dialect import Renderer
from agentrt.testing import ByteTokenizer
from agentrt.training.examples import Recorded, role_example
from agentrt.training.job import ToldFile, derive_data, load_data
from agentrt.training.pair_file import read_pairs
from agentrt.training.retell import retell
from agentrt.training.sources import Skipped
from agentrt.training.trajectory_file import read_trajectories

TEXT = ByteTokenizer().decode

TEAM = """
version: 1
base: {model: tiny}
preamble: Answer.
roles:
  plan: {adapter: plan, sampling: {max_new_tokens: 60}}
  action: {adapter: action, sampling: {max_new_tokens: 40}}
  reflect: {adapter: reflect, sampling: {max_new_tokens: 40}}
tools: {Search: {use: offline.search}}
flow:
  start: think
  nodes:
    think: {role: plan, emits: thought, next: decide}
    decide: {role: plan, emits: action, choices: [Search, Finish], next: argue}
    argue: {role: action, emits: argument, next: {Finish: judge, default: use_tool}}
    use_tool: {tool: true, next: think}
    judge: {role: reflect, emits: thought, next: verdict}
    verdict: {role: reflect, emits: verdict, choices: [right, wrong], next: {right: end, wrong: think}}
"""

WHOLE = (
    "Answer.\nQuestion: Where?\nThought: I look.\nAction: Search[ Bonn]\nObservation: A city. On the Rhine.\n"
    "Thought: It says so.\nAction: Finish[ the Rhine]\nThought: Fine.\nAction: Reflect[ right]"
)


@pytest.fixture
def team(tmp_path: Path) -> Team:
    (tmp_path / "team.yaml").write_text(TEAM)
    return Team.load(tmp_path / "team.yaml", need_adapters=False)


def row(**changes: Any) -> dict[str, Any]:
    """An episode as recorded agents' files hold it, names in other cases included."""
    turns = [
        {"role": "plan", "thought": "I look.", "action": "search", "action_input": "", "observation": ""},
        {
            "role": "action",
            "thought": "",
            "action": "search",
            "action_input": "Bonn",
            "observation": "A city.\nOn the Rhine.",
        },
        {"role": "plan", "thought": "It says so.", "action": "finish", "action_input": "", "observation": ""},
        {"role": "action", "action": "finish", "action_input": "the Rhine", "observation": "Answer is CORRECT"},
        {"role": "reflect", "thought": "Fine.", "action": "Reflect", "action_input": "right", "observation": ""},
    ]
    return {"id": "e", "question": "Where?", "turns": turns, "correct": True, "clean": True} | changes


def write(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in rows))
    return path


def recorded(made: object) -> Recorded:
    assert isinstance(made, Recorded), made
    return made


def test_an_episode_becomes_the_teams_text_and_every_role_learns_its_part(team: Team, tmp_path: Path) -> None:
    told, skipped = read_trajectories(write(tmp_path / "t.jsonl", [row()]), team)
    [one] = map(recorded, retell(team, ByteTokenizer(), told))
    assert not skipped
    assert TEXT(one.token_ids) == WHOLE
    assert one.question_id == "Where?"
    learnt = {}
    for role in ("plan", "action", "reflect"):
        example = role_example(one, role)
        assert example is not None
        learnt[role] = [TEXT(one.token_ids[field.start : field.end]) for field in example.fields]
    assert learnt == {
        "plan": [" I look.\n", " Search", " It says so.\n", " Finish"],
        "action": [" Bonn]", " the Rhine]"],
        "reflect": [" Fine.\n", " right]"],
    }


def test_an_episode_without_a_judge_ends_with_its_answer(team: Team, tmp_path: Path) -> None:
    told, _ = read_trajectories(write(tmp_path / "t.jsonl", [row(turns=row()["turns"][:4])]), team)
    [one] = map(recorded, retell(team, ByteTokenizer(), told))
    assert TEXT(one.token_ids) == WHOLE.split("\nThought: Fine.")[0]
    assert role_example(one, "reflect") is None


def change(turn: int, **values: Any) -> Callable[[], dict[str, Any]]:
    def changed() -> dict[str, Any]:
        turns = row()["turns"]
        turns[turn] |= values
        return row(turns=turns)

    return changed


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (change(0, action="BingSearch"), "the team has no such action: 'BingSearch'"),
        (change(0, thought=""), "its thought is empty"),
        (change(0, thought="x" * 80), "its thought is longer than the 60 tokens that plan may write: 'xxx"),
        (change(4, thought="x" * 45), "its thought is longer than the 40 tokens that reflect may write"),
        (change(0, role="critic"), "the team has no role that writes: 'critic'"),
        (change(1, observation=""), "no observation stands before the file's thought: 'It says so.'"),
        (change(1, well_formed=False, action_text="Search Bonn"), "an action is not well formed: 'Search Bonn'"),
        (change(4, action_input="maybe"), "a field is not what the team allows"),
        (lambda: row(correct=False), "its answer is not the gold answer"),
        (lambda: row(clean=False), "it is marked as not clean"),
        (lambda: row(turns=[]), "its turns cannot be used"),
        (lambda: row(turns=row()["turns"][2:]), ""),
        (lambda: row(turns=[*row()["turns"], *row()["turns"]]), "the team's episode ends before the file's thought"),
        (lambda: row(turns=row()["turns"][1:]), "the team has its thought where the file has its argument: 'Bonn'"),
        (lambda: {"question": "Where?"}, "its turns cannot be used: field required"),
        (lambda: "{", "it is not JSON"),
        (lambda: [1], "its row cannot be used"),
    ],
)
def test_a_row_that_cannot_be_used_is_named_and_the_rest_is_used(
    team: Team, tmp_path: Path, make: Callable[[], Any], reason: str
) -> None:
    path = write(tmp_path / "t.jsonl", [row(), make(), row(id="f")])
    facts = derive_data(team, ByteTokenizer(), [], tmp_path / "out", told=[ToldFile(path)])
    lines = (tmp_path / "out" / "data" / "skipped.jsonl").read_text().splitlines()
    if not reason:
        assert facts["trajectories"] == 3, "an answer at once is an episode too"
        return
    [skipped] = map(json.loads, lines)
    assert skipped["place"] == f"{path}:2"
    assert skipped["reason"].startswith(reason)
    assert (facts["trajectories"], facts["episodes"], sum(facts["skipped"].values())) == (2, 3, 1)
    assert [each.id for each in load_data(tmp_path / "out")[0]] == ["e", "f"]


def test_a_field_is_held_to_the_limit_of_the_role_that_writes_it(team: Team, tmp_path: Path) -> None:
    path = write(tmp_path / "t.jsonl", [change(0, thought="x" * 50)()])
    assert derive_data(team, ByteTokenizer(), [], tmp_path, told=[ToldFile(path)])["skipped"] == {}


def test_pairs_teach_the_output_alone_with_the_tokens_of_the_runtime(team: Team, tmp_path: Path) -> None:
    renderer = Renderer(team.dialect, ByteTokenizer())
    cut = WHOLE.index(" It says so.")
    rows = [
        {"input": WHOLE[:cut], "output": " It says so.\nAction: Finish"},
        {"input": WHOLE[:cut].removeprefix("Answer.\n").rstrip(), "output": "It says so."},
        {"input": WHOLE[: cut - len("Thought:")], "output": "Thought: It says so."},
    ]
    told, skipped = read_pairs(write(tmp_path / "p.jsonl", rows), "plan", team)
    made = [recorded(one) for one in retell(team, ByteTokenizer(), told)]
    assert not skipped
    for one, learnt in zip(made, [[" It says so.\n", " Finish"], [" It says so.\n"], [" It says so.\n"]], strict=True):
        example = role_example(one, "plan")
        assert example is not None
        assert [TEXT(one.token_ids[f.start : f.end]) for f in example.fields] == learnt
        assert list(one.token_ids[: example.fields[0].end]) == [
            *renderer.tokenizer.encode(WHOLE[:cut]),
            *renderer.field("thought", "It says so."),
        ]
        assert role_example(one, "action") is None, "the input is context"
    assert len({one.question_id for one in made}) == 1, "all rows of a question are on one side of the split"


def test_a_question_has_one_side_of_the_split_in_files_of_all_kinds(team: Team, tmp_path: Path) -> None:
    posed = "Which  one?\nOptions: (A) a (B) b"
    episode = row(question_id="q7", question="Which  one?", choices=["a", "b"])
    text = WHOLE.replace("Where?", "Which one? Options: (A) a (B) b")
    files = [
        ToldFile(write(tmp_path / "t.jsonl", [episode, row(id="u", question=posed)])),
        ToldFile(write(tmp_path / "p.jsonl", [{"input": text.split(" It says")[0], "output": "It says so."}]), "plan"),
    ]
    derive_data(team, ByteTokenizer(), [], tmp_path, told=files)
    assert [each.question_id for each in load_data(tmp_path)[0]] == ["Which one? Options: (A) a (B) b"] * 3


def test_pairs_of_arguments_and_verdicts(team: Team, tmp_path: Path) -> None:
    rows = [{"input": WHOLE.split(" Bonn")[0], "output": " Bonn]"}]
    told, _ = read_pairs(write(tmp_path / "a.jsonl", rows), "action", team)
    [one] = map(recorded, retell(team, ByteTokenizer(), told))
    assert TEXT(one.token_ids) == WHOLE.split("\nObservation")[0]
    rows = [{"input": WHOLE.split(" Fine.")[0], "output": " Fine.\nAction: Reflect[ right]"}]
    told, _ = read_pairs(write(tmp_path / "r.jsonl", rows), "reflect", team)
    [one] = map(recorded, retell(team, ByteTokenizer(), told))
    example = role_example(one, "reflect")
    assert example is not None
    assert [field.kind for field in example.fields] == ["thought", "verdict"]
    assert TEXT(one.token_ids) == WHOLE


@pytest.mark.parametrize(
    ("before", "output", "reason"),
    [
        ("Thought:", " x", "no question stands in its input"),
        ("Other.\nQuestion: Where?\nThought:", " x", "its preamble is not the team's: 'Other.'"),
        ("Question: Where?\nIdea: x\nThought:", " x", "a line begins with none of the team's labels: 'Idea: x'"),
        ("Question: Where?\nThought: I lo", "ok.", "its output begins inside a thought: 'I look.'"),
        ("Question: Where?\nThought: x\nAction: Search[ y]\n", "Observation: z", "its output ends in an observation"),
        ("Question: Where?\nThought:", "", "its output cannot be used"),
        ("Question: Where?\nThought: I look.\nAction:", " Jump[ y]", "the team has no such action: 'Jump'"),
        ("Question: Where?\nThought: I look.\nAction: Search[", " y]", "the team's action writes what the file gives"),
    ],
)
def test_text_of_another_dialect_is_named(team: Team, tmp_path: Path, before: str, output: str, reason: str) -> None:
    path = write(tmp_path / "p.jsonl", [{"input": before, "output": output}])
    told, skipped = read_pairs(path, "plan", team)
    reasons = [*skipped, *retell(team, ByteTokenizer(), told)]
    assert len(reasons) == 1
    assert not isinstance(reasons[0], Recorded)
    assert reasons[0].reason.startswith(reason)
    assert reasons[0].place == f"{path}:1"


def test_titles_that_were_shown_may_be_read_in_a_retold_episode(team: Team, tmp_path: Path) -> None:
    text = TEAM.replace("Search, Finish", "Search, Retrieve, Finish").replace(
        "{Search: {use: offline.search}}", "{Search: {use: offline.search}, Retrieve: {use: offline.page}}"
    )
    text = text.replace("emits: argument,", "emits: argument, constrain: {Retrieve: {choices: seen_titles}},")
    (tmp_path / "team.yaml").write_text(text)
    team = Team.load(tmp_path / "team.yaml", need_adapters=False)
    search, found, *others = row()["turns"]

    def read(title: str) -> object:
        turns = [
            {"role": "plan", "thought": "I read it.", "action": "Retrieve"},
            {"role": "action", "action": "Retrieve", "action_input": title, "observation": "It lies on the Rhine."},
        ]
        listed = found | {"observation": "[1] Bonn: A city."}
        told, _ = read_trajectories(write(tmp_path / "t.jsonl", [row(turns=[search, listed, *turns, *others])]), team)
        (made,) = retell(team, ByteTokenizer(), told)
        return made

    assert "Action: Retrieve[ Bonn]" in TEXT(recorded(read("Bonn")).token_ids)
    hidden = read("Cologne")
    assert isinstance(hidden, Skipped)
    assert "not what the team allows" in hidden.reason


def test_a_file_that_gives_nothing_is_an_error_with_its_reasons(team: Team, tmp_path: Path) -> None:
    path = write(tmp_path / "t.jsonl", [row(correct=False)] * 3)
    with pytest.raises(DataError, match="nothing gave a trajectory: 3 x its answer is not the gold answer"):
        derive_data(team, ByteTokenizer(), [], tmp_path, told=[ToldFile(path)])
    with pytest.raises(UsageError, match=r"absent\.jsonl: cannot be read"):
        derive_data(team, ByteTokenizer(), [], tmp_path, told=[ToldFile(tmp_path / "absent.jsonl", "plan")])


def test_data_is_made_once_for_the_same_request(team: Team, tmp_path: Path) -> None:
    path = write(tmp_path / "t.jsonl", [row(), row(id="f")])
    made = derive_data(team, ByteTokenizer(), [], tmp_path, told=[ToldFile(path)])
    written = (tmp_path / "data" / "trajectories.jsonl").stat().st_mtime_ns
    assert derive_data(team, ByteTokenizer(), [], tmp_path, told=[ToldFile(path)], reuse=True) == made
    assert (tmp_path / "data" / "trajectories.jsonl").stat().st_mtime_ns == written
    derive_data(team, ByteTokenizer(), [], tmp_path, told=[ToldFile(path)], limit=1, reuse=True)
    assert len(load_data(tmp_path)[0]) == 1


def test_data_that_changed_since_is_not_learnt_from_and_is_made_again(team: Team, tmp_path: Path) -> None:
    path = write(tmp_path / "t.jsonl", [row(), row(id="f")])
    made = derive_data(team, ByteTokenizer(), [], tmp_path, told=[ToldFile(path)])
    file = tmp_path / "data" / "trajectories.jsonl"
    file.write_text(file.read_text().split("\n")[0] + "\n")
    with pytest.raises(DataError, match=r"trajectories\.jsonl: changed since facts\.json was written"):
        load_data(tmp_path)
    assert derive_data(team, ByteTokenizer(), [], tmp_path, told=[ToldFile(path)], reuse=True) == made
    assert len(load_data(tmp_path)[0]) == 2
    assert sorted(each.name for each in file.parent.iterdir()) == ["facts.json", "skipped.jsonl", "trajectories.jsonl"]


def test_data_are_replaced_when_the_new_are_whole_and_facts_are_never_those_of_others(
    team: Team, tmp_path: Path
) -> None:
    path, data = write(tmp_path / "t.jsonl", [row(), row(id="f")]), tmp_path / "data"
    derive_data(team, ByteTokenizer(), [], tmp_path, told=[ToldFile(path)])
    (data / ".skipped.jsonl.part").mkdir()  # stands for a kill, or a full disk, before all is written
    with pytest.raises(IsADirectoryError):
        derive_data(team, ByteTokenizer(), [], tmp_path, told=[ToldFile(path)], limit=1)
    assert len(load_data(tmp_path)[0]) == 2
    (data / ".skipped.jsonl.part").rmdir()
    (data / "skipped.jsonl").unlink()
    (data / "skipped.jsonl").mkdir()  # stands for a kill between two files
    with pytest.raises(IsADirectoryError):
        derive_data(team, ByteTokenizer(), [], tmp_path, told=[ToldFile(path)], limit=1)
    with pytest.raises(UsageError, match="holds no trajectories"):
        load_data(tmp_path)


def test_released_trajectories_are_read(shared_data: Path, tmp_path: Path) -> None:
    """AutoAct's own agents, under a team with its tools and room for its thoughts."""
    text = TEAM.replace("Search, Finish", "BingSearch, Retrieve, Lookup, Finish").replace(
        "{Search: {use: offline.search}}",
        "{BingSearch: {use: offline.search}, Retrieve: {use: offline.page}, Lookup: {use: offline.lookup}}",
    )
    (tmp_path / "team.yaml").write_text(text)
    changes = [
        Override(("roles", role, "sampling", "max_new_tokens"), 600, "the test")
        for role in ("plan", "action", "reflect")
    ]
    changes.append(Override(("limits", "max_observation_tokens"), 400, "the test"))
    team = Team.load(tmp_path / "team.yaml", overrides=changes, need_adapters=False)
    path = shared_data / "trajectories" / "autoact_70b_hotpotqa.jsonl"
    facts = derive_data(team, ByteTokenizer(), [], tmp_path, told=[ToldFile(path)], limit=40)
    assert facts["trajectories"] > 10
    assert facts["trajectories"] + sum(facts["skipped"].values()) == facts["episodes"]
