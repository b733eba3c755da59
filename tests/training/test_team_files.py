"""Which files a team is trained on."""

from pathlib import Path

import pytest

from agentrt.builtin import agents_dir, configs_dir
from agentrt.config.team import Override, Team
from agentrt.errors import ConfigError
from agentrt.training.job import ToldFile
from agentrt.training.team_files import files_of, licence_of


def test_a_team_that_names_none_learns_the_mini_benchmark() -> None:
    mini = configs_dir() / "mini"
    [source] = files_of(Team.load("search", need_adapters=False))
    assert source == (mini / "questions.jsonl", mini / "articles.jsonl")


def test_a_team_names_its_files_relative_to_itself_and_answers_from_its_corpus() -> None:
    lessons = agents_dir() / "science" / "lessons"
    first, second = files_of(Team.load("science", need_adapters=False))
    assert first == (lessons / "questions.jsonl", lessons / "pages.jsonl")
    assert second.questions.resolve() == (configs_dir() / "mini" / "science.jsonl").resolve()
    assert second.corpus == first.corpus


def test_questions_without_a_corpus_are_a_mistake_of_the_file() -> None:
    named = Override(("train_on",), ("questions.jsonl",), "the test")
    with pytest.raises(ConfigError, match="name the `corpus`"):
        Team.load("search", overrides=[named], need_adapters=False)
    answered = Override(("corpus",), "pages.jsonl", "the test")
    team = Team.load("search", overrides=[named, answered], need_adapters=False)
    assert files_of(team) == [(team.root / "questions.jsonl", team.root / "pages.jsonl")]


def test_the_licence_is_known_of_what_ships_and_of_nothing_else() -> None:
    shipped = [source for name in ("search", "science") for source in files_of(Team.load(name, need_adapters=False))]
    assert licence_of(shipped) == "Apache-2.0"
    assert licence_of([*shipped, ToldFile(Path("episodes.jsonl"), "plan")]) == "not stated"
