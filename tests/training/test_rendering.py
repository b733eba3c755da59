"""Serving cannot differ from training: every example has the tokens that the runtime has in that state.

All trajectories of the mini benchmark are derived, written and read back. Then the runtime answers each question
again, with its own tools and constraints, while every field is forced to the recorded tokens.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from agentrt.builtin import configs_dir
from agentrt.config.team import Team
from agentrt.errors import BackboneError
from agentrt.runtime.episode import Runtime
from agentrt.runtime.ports import Tokenizer
from agentrt.testing import ScriptedEngine
from agentrt.training.examples import Recorded, role_example
from agentrt.training.job import Source, derive_data, load_data
from agentrt.training.retry import with_retry
from tests.training.teams import WordTokenizer

ARTICLES = configs_dir() / "mini" / "articles.jsonl"
QUESTIONS = configs_dir() / "mini" / "questions.jsonl"


class State(NamedTuple):
    """What the runtime asked for, and what it had then."""

    adapter: str
    emits: str
    token_ids: tuple[int, ...]


class Forcing:
    """A runtime whose engine writes what `forced` holds, and remembers each state in which it was asked to."""

    def __init__(self, team: Team, tokenizer: Tokenizer) -> None:
        self.forced: Iterator[list[int]] = iter(())
        self.states: list[State] = []
        self.engine = ScriptedEngine(
            self._write, tokenizer=tokenizer, dialect=team.dialect, adapter_names=tuple(team.adapters())
        )
        self.runtime = Runtime(team, engine=self.engine, corpus=ARTICLES)

    def _write(self, adapter: str, emits: str, so_far: str) -> list[int]:
        self.states.append(State(adapter, emits, tuple(self.engine.sessions[-1].trajectory.token_ids)))
        return next(self.forced)

    def run(self, question: str, recorded: Recorded) -> None:
        self.states, self.engine.sessions[:] = [], []
        self.forced = iter([list(recorded.token_ids[span.start : span.end]) for span in recorded.fields])
        result = self.runtime.run(question)
        assert (result.status, result.parse_failures) == ("finished", 0)
        assert next(self.forced, None) is None
        assert tuple(result.token_ids) == recorded.token_ids

    def processed_by(self, role: str) -> list[int]:
        """The positions that a role's path ran through the model."""
        processed = self.engine.sessions[-1].trajectory.processed
        return [row for each in processed if each.path == role for row in range(each.start, each.end)]


def check_all(team: Team, tokenizer: Tokenizer, out: Path, variants: int) -> int:
    """Checks every example of every role; how many there were."""
    derive_data(team, tokenizer, [Source(QUESTIONS, ARTICLES)], out, split=None, variants=variants)
    forcing, checked = Forcing(team, tokenizer), 0
    with forcing.runtime:
        for recorded in load_data(out)[0]:
            forcing.run(recorded.question_id, recorded)
            states = {len(state.token_ids): state for state in forcing.states}
            for role in team.adapters():
                example = role_example(recorded, role)
                assert example is not None
                for field in example.fields:
                    assert states[field.start] == (role, field.kind, example.token_ids[: field.start])
                rows = [row for row in forcing.processed_by(role) if row < example.fields[-1].end - 1]
                assert list(example.own_rows) == rows
                checked += 1
    return checked


def test_every_example_is_a_state_of_the_runtime(tmp_path: Path) -> None:
    team = with_retry(Team.load("search", need_adapters=False))
    assert check_all(team, WordTokenizer(), tmp_path, variants=4) > 600


@pytest.mark.slow
@pytest.mark.real_model
def test_every_example_is_a_state_of_the_runtime_with_the_default_tokenizer(tmp_path: Path) -> None:
    from agentrt.model.fetch import locate
    from agentrt.model.tokenizer import Tokenizer as RealTokenizer

    team = with_retry(Team.load("search", need_adapters=False))
    try:
        folder = locate(team.base.model).folder
    except BackboneError as error:
        pytest.skip(f"the default backbone cannot be had here: {error}")
    assert check_all(team, RealTokenizer.from_folder(folder), tmp_path, variants=1) > 150
