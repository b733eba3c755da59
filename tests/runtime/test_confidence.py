"""Confidence is the probability of the answer's words where a thought first says them."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentrt.runtime.confidence import answer_confidence
from agentrt.runtime.episode import Runtime
from agentrt.testing import ByteTokenizer, ScriptedEngine, ScriptedResult, ScriptedSession, ScriptedTurn

from .conftest import MakeTeam

TOKENIZER = ByteTokenizer("Waco", " is")


def test_the_tokens_are_those_of_the_last_time_the_thought_says_the_answer() -> None:
    thought = TOKENIZER.encode(" Not Waco. It is Waco, Te.")
    logprobs = [0.0] * len(thought)
    first, last = (at for at, token_id in enumerate(thought) if token_id == TOKENIZER.encode("Waco")[0])
    logprobs[first], logprobs[last] = -9.0, math.log(0.25)
    assert answer_confidence(TOKENIZER, "Waco", thought, logprobs, [-5.0]) == pytest.approx(0.25)
    mean = math.log(0.25) / 5
    assert answer_confidence(TOKENIZER, "Waco, Te", thought, logprobs, [-5.0]) == pytest.approx(math.exp(mean))


def test_a_thought_that_does_not_say_it_leaves_the_field() -> None:
    thought = TOKENIZER.encode(" It is clear.")
    logprobs = [-1.0] * len(thought)
    assert answer_confidence(TOKENIZER, "Waco", thought, logprobs, [-0.5, -1.5]) == pytest.approx(math.exp(-1))
    assert answer_confidence(TOKENIZER, "cle", thought, logprobs, [-0.5]) == pytest.approx(math.exp(-0.5))
    assert answer_confidence(TOKENIZER, "", thought, logprobs, [-0.5]) == pytest.approx(math.exp(-0.5))
    assert answer_confidence(TOKENIZER, "Waco", thought, logprobs, []) is None


class DoubtfulTurn(ScriptedTurn):
    """Every token of a thought has probability 1/2, every other one 1."""

    @property
    def result(self) -> ScriptedResult:
        found = super().result
        return replace(found, logprobs=(math.log(0.5) if self.emits == "thought" else 0.0,) * len(found.token_ids))

    emits = ""


class DoubtfulSession(ScriptedSession):
    def turn(self, adapter: str, *args: Any, kind: str = "thought", **options: Any) -> ScriptedTurn:
        turn = DoubtfulTurn(self, adapter, options["sampling"], kind)
        turn.emits = kind
        return turn


class DoubtfulEngine(ScriptedEngine):
    def session(self, preamble: Sequence[int] | None = None) -> ScriptedSession:
        return DoubtfulSession(self)


@pytest.mark.parametrize(("thought", "confidence"), [("It was 1975.", 0.5), ("I know it.", 1.0)])
def test_an_episode_tells_the_confidence_of_plans_thought(
    make_team: MakeTeam, corpus: Path, thought: str, confidence: float
) -> None:
    engine = DoubtfulEngine(["I search.", "Search", "Jaws", thought, "Finish", "1975", "So it is.", "right"])
    with Runtime(make_team(), engine=engine, corpus=corpus) as rt:
        result = rt.run("When?")
    assert result.confidence == pytest.approx(confidence)
    assert result.event().confidence == result.confidence
