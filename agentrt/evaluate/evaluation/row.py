"""One episode of an evaluation as one line of JSON: the gold answer, the score, and the whole result."""

from typing import Final, Literal, Self

from pydantic import BaseModel, ConfigDict

from agentrt.evaluate.evaluation.plan import Episode, Key
from agentrt.evaluate.scoring import Score, score
from agentrt.questions.question import Question
from agentrt.runtime.events import ANSWERED, Status
from agentrt.runtime.result import EpisodeResult

SCHEMA_VERSION: Final = 1
"""Raised when a key changes its meaning or goes; new keys do not raise it."""

BROKEN: Final = frozenset({"failed", "limit:tool_errors"})
"""Ends that say nothing about the team: something around it broke."""


class EpisodeRow(BaseModel):
    """`answer` and `letter` are the gold, `prediction` what the team said. `result` is None if the run raised
    `error`. Everything that scoring reads is here, so rows can be scored anew without the question file."""

    model_config = ConfigDict(frozen=True)

    event: Literal["episode_finished"] = "episode_finished"
    schema_version: int = SCHEMA_VERSION
    id: str
    repeat: int
    seed: int
    benchmark: str
    split: str
    group: str
    kind: str
    question: str
    answer: str
    choices: tuple[str, ...]
    letter: str
    prediction: str | None
    status: Status
    correct: bool
    f1: float
    error: str | None
    result: EpisodeResult | None

    @property
    def key(self) -> Key:
        return Key(self.id, self.repeat)

    @property
    def broken(self) -> bool:
        return self.status in BROKEN

    @property
    def asked(self) -> Question:
        """The question as scoring needs it."""
        return Question(
            id=self.id,
            benchmark=self.benchmark,
            split=self.split,
            group=self.group,
            kind=self.kind,
            text=self.question,
            answer=self.answer,
            choices=self.choices,
            letter=self.letter,
        )

    def rescore(self) -> Self:
        """The row under today's scoring."""
        return self.model_copy(update=_score(self.asked, self.prediction, self.status)._asdict())


def row_of(episode: Episode, result: EpisodeResult | None, error: BaseException | None = None) -> EpisodeRow:
    question = episode.question
    status: Status = "failed" if result is None else result.status
    prediction = None if result is None else result.answer
    scored = _score(question, prediction, status)
    return EpisodeRow(
        id=question.id,
        repeat=episode.repeat,
        seed=episode.seed,
        benchmark=question.benchmark,
        split=question.split,
        group=question.group,
        kind=question.kind,
        question=question.text,
        answer=question.answer,
        choices=question.choices,
        letter=question.letter,
        prediction=prediction,
        status=status,
        correct=scored.correct,
        f1=scored.f1,
        error=None if error is None else f"{type(error).__name__}: {error}",
        result=result,
    )


def _score(question: Question, prediction: str | None, status: Status) -> Score:
    return score(question, prediction, finished=status in ANSWERED)
