"""A corpus of three articles and a small team, for episodes without a model."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from agentrt.config.team import Team

ARTICLES = {
    "Jaws (film)": ["Jaws is a 1975 film directed by Steven Spielberg.", " It is about a shark."],
    "Steven Spielberg": ["Steven Spielberg is a director born in Cincinnati, Ohio."],
    "Cincinnati": ["Cincinnati is a city in Ohio.", " It lies on the Ohio River."],
}

TEAM = """
version: 1
preamble: Answer the question.
roles:
  plan: {adapter: adapters/plan}
  action: {adapter: adapters/action}
  reflect: {adapter: none}
tools:
  Search: {use: offline.search, k: 1, snippet_chars: 60}
  Retrieve: {use: offline.page}
  Lookup: {use: offline.lookup}
flow:
  start: think
  nodes:
    think: {role: plan, emits: thought, next: decide}
    decide: {role: plan, emits: action, choices: [Search, Retrieve, Lookup, Finish], next: argue}
    argue:
      role: action
      emits: argument
      constrain:
        Retrieve: {choices: seen_titles}
        Finish: {span_of: observations, also: ["yes", "no"]}
      next: {Finish: judge, default: use_tool}
    use_tool: {tool: true, next: think}
    judge: {role: reflect, emits: thought, next: verdict}
    verdict: {role: reflect, emits: verdict, choices: [right, wrong], next: {right: end, wrong: think}}
limits: {max_steps: 6}
"""

MakeTeam = Callable[..., Team]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    file = tmp_path / "corpus.jsonl"
    rows = ({"title": title, "sentences": sentences} for title, sentences in ARTICLES.items())
    file.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return file


@pytest.fixture
def make_team(tmp_path: Path) -> MakeTeam:
    """The team above, with texts of its file replaced: `make_team(("k: 1", "k: 3"))`."""

    def make(*replaced: tuple[str, str]) -> Team:
        text = TEAM
        for old, new in replaced:
            assert old in text
            text = text.replace(old, new)
        (tmp_path / "small.yaml").write_text(text, encoding="utf-8")
        return Team.load(tmp_path / "small.yaml", need_adapters=False)

    return make
