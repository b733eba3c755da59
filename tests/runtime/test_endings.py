"""Thoughts that are free until certain words, and end with one of certain texts behind them."""

import random
from pathlib import Path

import pytest

from agentrt.config.sections import DialectConfig
from agentrt.runtime.constraints import ChoiceConstraint, FieldConstraint, SpanConstraint
from agentrt.runtime.dialect import Renderer
from agentrt.runtime.endings import EndingConstraint
from agentrt.runtime.episode import Runtime
from agentrt.testing import ByteTokenizer, ScriptedEngine, ScriptError

from .conftest import MakeTeam

AFTER = (
    "think: {role: plan, emits: thought, next: decide}",
    "think: {role: plan, emits: thought, after: {I read: {choices: seen_titles}, "
    "The answer is: {span_of: observations, also: [yes, no]}}, next: decide}",
)


@pytest.fixture
def renderer() -> Renderer:
    return Renderer(DialectConfig(), ByteTokenizer(" is", "..", ".\n"))


def titles(renderer: Renderer, *choices: str) -> FieldConstraint | None:
    return ChoiceConstraint(renderer, "thought", choices, closing=".") if choices else None


def thoughts(renderer: Renderer, *choices: str) -> EndingConstraint:
    return EndingConstraint(
        renderer,
        {
            "I read": lambda: titles(renderer, *choices),
            "The answer is": lambda: SpanConstraint(renderer, "thought", ["In Waco, Texas."], closing="."),
        },
        max_tokens=200,
    )


def test_a_thought_is_free_until_the_words_and_limited_behind_them(renderer: Renderer) -> None:
    constraint = thoughts(renderer, "Jaws", "Jaws 2")
    before = renderer.tokenizer.encode(" The film is old. I read")
    assert all(constraint.allowed(before[:at]) is None for at in range(len(before)))
    assert constraint.allowed(before) == [ord(" ")]
    jaws = [*before, *renderer.tokenizer.encode(" Jaws")]
    dot, more = renderer.tokenizer.encode(".\n")[0], ord(" ")
    assert set(constraint.allowed(jaws) or ()) == {dot, more}


@pytest.mark.parametrize(
    ("thought", "allowed"),
    [
        ("I read Jaws.", True),
        ("It says so. I read Jaws 2.", True),
        ("I read Up.", False),
        ("The answer is Waco, Texas.", True),
        ("The answer is Texas..", True),
        ("The answer is Dallas.", False),
        ("The answer is Waco", False),
        ("The answer was Dallas.", True),
    ],
)
def test_what_a_thought_may_be_has_the_tokens_of_the_field(renderer: Renderer, thought: str, allowed: bool) -> None:
    constraint = thoughts(renderer, "Jaws", "Jaws 2")
    field = renderer.field("thought", thought)
    steps = (constraint.allowed(field[:at]) for at in range(len(field)))
    followed = all(step is None or token_id in step for token_id, step in zip(field, steps, strict=True))
    assert followed is allowed
    if allowed:
        assert constraint.allowed(field) == []
        assert constraint.read(field).text == thought


def test_words_without_an_ending_mean_nothing(renderer: Renderer) -> None:
    constraint = thoughts(renderer)
    field = renderer.field("thought", "I read nothing. The answer is Waco.")
    assert constraint.allowed(field[:8]) is None
    assert constraint.allowed(field[:-2]) is not None


def test_a_thought_that_is_cut_off_is_read_as_far_as_it_goes(renderer: Renderer) -> None:
    read = thoughts(renderer, "Jaws").read(renderer.tokenizer.encode(" I read Ja"))
    assert (read.text, read.closed) == ("I read Ja", False)


def test_any_draw_ends_with_an_ending(renderer: Renderer) -> None:
    constraint, dice = thoughts(renderer, "Jaws", "Up"), random.Random(0)
    generated = renderer.tokenizer.encode(" Now I read")
    while allowed := constraint.allowed(generated):
        generated.append(dice.choice(list(allowed)))
    assert constraint.read(generated).text in ("Now I read Jaws.", "Now I read Up.")


def test_a_team_file_limits_the_ends_of_thoughts(make_team: MakeTeam, corpus: Path) -> None:
    script = ["I search.", "Search", "Jaws", "It is listed. I read Jaws (film).", "Retrieve", "Jaws (film)"]
    script += ["It is clear. The answer is 1975.", "Finish", "1975", "So it is.", "right"]
    with Runtime(make_team(AFTER), engine=ScriptedEngine(script), corpus=corpus) as rt:
        result = rt.run("When was Jaws made?")
    assert (result.status, result.answer) == ("finished", "1975")
    for wrong in ("I read Steven Spielberg.", "The answer is Paris."):
        engine = ScriptedEngine(["I search.", "Search", "Cincinnati", wrong])
        with Runtime(make_team(AFTER), engine=engine, corpus=corpus) as rt, pytest.raises(ScriptError, match="allow"):
            rt.run("When was Jaws made?")
