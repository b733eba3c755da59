"""A judging role learns from the team's own answers, with the verdicts that their scores give."""

import json
from pathlib import Path
from typing import Any

import pytest

from agentrt.config.team import Team
from agentrt.errors import UsageError
from agentrt.evaluate.evaluation.plan import Episode
from agentrt.evaluate.evaluation.row import row_of
from agentrt.questions.question import Question
from agentrt.runtime.episode import Runtime
from agentrt.testing import ByteTokenizer, FakeTool, ScriptedEngine
from agentrt.training.examples import Recorded, role_example
from agentrt.training.judged_file import read_judged
from agentrt.training.retell import retell
from agentrt_tools import ToolResult

from .test_retell import TEAM, TEXT, write

SEARCH = ["I look.", "Search", "Bonn"]
FINISH = ["It says so.", "Finish", "the Rhine"]


@pytest.fixture
def team(tmp_path: Path) -> Team:
    (tmp_path / "team.yaml").write_text(TEAM)
    return Team.load(tmp_path / "team.yaml", need_adapters=False)


def evaluated(team: Team, script: list[str], gold: str) -> dict[str, Any]:
    """The row of an episode that went like `script`."""
    tools = {"Search": FakeTool("fake", {"Bonn": ToolResult("A city. On the Rhine.")})}
    with Runtime(team, engine=ScriptedEngine(script), tools=tools) as rt:
        result = rt.run("Where?")
    asked = Question(id="q", benchmark="hotpotqa", split="eval", group="", kind="", text="Where?", answer=gold)
    row: dict[str, Any] = json.loads(row_of(Episode(asked, 0, 0), result).model_dump_json())
    return row


def learnt(team: Team, file: Path) -> str:
    """What reflect is taught of the file's one episode, and that nobody else is taught anything."""
    told, skipped = read_judged(file, team)
    assert not skipped
    (made,) = retell(team, ByteTokenizer(), told)
    assert isinstance(made, Recorded), made
    assert role_example(made, "plan") is None
    assert role_example(made, "action") is None
    example = role_example(made, "reflect")
    assert example is not None
    return "|".join(TEXT(example.token_ids[each.start : each.end]) for each in example.fields)


@pytest.mark.parametrize(
    ("said", "gold", "taught"),
    [
        (["So it is right.", "right"], "the Rhine", " So it is right.\n| right]"),
        (["So it is right.", "right"], "the Elbe", " So it is wrong.\n| wrong]"),
        (["Hm.", "wrong", *FINISH, "So it is wrong.", "right"], "the Rhine", " So it is right.\n| right]"),
        (["I am not sure.", "right"], "the Elbe", " I am not sure.\n| wrong]"),
    ],
)
def test_the_last_judgement_is_taught_as_the_score_has_it(
    team: Team, tmp_path: Path, said: list[str], gold: str, taught: str
) -> None:
    row = evaluated(team, [*SEARCH, *FINISH, *said], gold)
    assert learnt(team, write(tmp_path / "episodes.jsonl", [row])) == taught


def test_the_text_before_it_is_the_episode_s_own(team: Team, tmp_path: Path) -> None:
    row = evaluated(team, [*SEARCH, *FINISH, "So it is wrong.", "right"], "the Rhine")
    told, _ = read_judged(write(tmp_path / "episodes.jsonl", [row]), team)
    (made,) = retell(team, ByteTokenizer(), told)
    assert isinstance(made, Recorded)
    text = "".join(span["text"] for span in row["result"]["spans"])
    assert made.question_id == "Where?"
    assert TEXT(made.token_ids) == text.replace("is wrong.", "is right.")


def test_what_cannot_be_judged_is_left_out_by_name(team: Team, tmp_path: Path) -> None:
    row = evaluated(team, [*SEARCH, *FINISH, "Fine.", "right"], "the Rhine")
    malformed = {**row, "id": "m", "result": row["result"] | {"parse_failures": 1}}
    unjudged = {**row, "id": "u", "result": row["result"] | {"spans": row["result"]["spans"][:-2]}}
    failed = {**row, "id": "f", "prediction": None}
    told, skipped = read_judged(write(tmp_path / "e.jsonl", [failed, malformed, unjudged, row, "{"]), team)
    assert [each.id for each in told] == ["q"]
    assert {each.id: each.reason.partition(":")[0] for each in skipped} == {
        "f": "it has no answer",
        "m": "an action is not well formed",
        "u": "its answer was not judged",
        "e.jsonl:5": "it is not JSON",
    }
    assert skipped[0].place == f"{tmp_path / 'e.jsonl'}:1"


def test_a_team_that_judges_in_other_words_is_refused(tmp_path: Path) -> None:
    text = TEAM.replace("choices: [right, wrong], next: {right: end, wrong: think}", "choices: [yes, no], next: end")
    (tmp_path / "team.yaml").write_text(text)
    with pytest.raises(UsageError, match="no role that writes these verdicts"):
        read_judged(tmp_path / "e.jsonl", Team.load(tmp_path / "team.yaml", need_adapters=False))
