"""ScienceQA's questions about an image: posed without their caption, which a tool tells to who asks."""

import json
from pathlib import Path

import pytest

from agentrt.config.team import Team
from agentrt.questions.datasets import Question, load_questions
from agentrt.runtime.episode import Runtime
from agentrt.testing import ScriptedEngine

TEAM = """
version: 1
roles:
  agent: {adapter: none}
tools:
  Image2Text: {use: scienceqa.image, captions: questions.jsonl}
flow:
  start: decide
  nodes:
    decide: {role: agent, emits: action, choices: [Image2Text, Finish], next: argue}
    argue: {role: agent, emits: argument, next: {Finish: end, default: use_tool}}
    use_tool: {tool: true, next: decide}
limits: {max_observation_tokens: 1000}
"""
ROW = {
    "id": "x",
    "question": "What is it?",
    "choices": ["a bat", "a bird"],
    "answer": "A",
    "grade": 3,
    "hint": "Look at it.",
    "image": "image.png",
    "caption": "A bat in a cave.",
    "ocr": "[([[0, 0], [1, 1]], 'CAVE', 0.9)]",
}


def team(folder: Path) -> Team:
    (folder / "team.yaml").write_text(TEAM)
    return Team.load(folder / "team.yaml")


def observe(team: Team, question: Question) -> str:
    script = ["Image2Text", "image", "Finish", question.letter]
    with Runtime(team, engine=ScriptedEngine(script)) as rt:
        result = rt.run(question.text)
    assert result.answer == question.letter
    return result.actions[0].observation or ""


def test_the_caption_is_left_to_the_tool_which_tells_it(tmp_path: Path) -> None:
    data = tmp_path / "questions.jsonl"
    data.write_text(json.dumps(ROW) + "\n")
    asked = team(tmp_path)
    assert asked.shows_images
    (question,) = load_questions("scienceqa", data, captions=False)
    assert question.text == "What is it?\nContext: Look at it.\nOptions: (A) a bat (B) a bird"
    assert observe(asked, question) == "Image: A bat in a cave. Text in it: CAVE"
    (inlined,) = load_questions("scienceqa", data)
    assert "Image: A bat in a cave." in inlined.text


def test_teams_without_such_a_tool_show_no_images() -> None:
    assert not Team.load("search", need_adapters=False).shows_images


@pytest.mark.parametrize("captions", [True, False])
def test_with_captions_the_benchmark_is_the_papers_360_questions(
    shared_data: Path, tmp_path: Path, captions: bool
) -> None:
    data = tmp_path / "questions.jsonl"
    names = ("eval.jsonl", "eval_image_captioned.jsonl")
    data.write_text("".join((shared_data / "scienceqa" / name).read_text(encoding="utf-8") for name in names))
    questions = load_questions("scienceqa", data, captions=captions)
    assert len(questions) == 360
    assert [sum(q.group == band for q in questions) for band in ("1-4", "5-8", "9-12")] == [120, 120, 120]
    assert observe(team(tmp_path), questions[0]) == "This question doesn't have an image."
    assert observe(team(tmp_path), questions[-1]).startswith("Image: ")
