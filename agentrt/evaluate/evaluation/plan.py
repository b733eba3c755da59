"""Which episodes an evaluation has. Their seeds depend on the question, never on order or company."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from agentrt.config.team import Team
from agentrt.errors import UsageError
from agentrt.questions.question import Question
from agentrt.runtime.saved import Resources
from agentrt_tools import Json


class Key(NamedTuple):
    """What tells episodes of one evaluation apart; `repeat` counts from 0."""

    id: str
    repeat: int


class Episode(NamedTuple):
    question: Question
    repeat: int
    seed: int

    @property
    def key(self) -> Key:
        return Key(self.question.id, self.repeat)


@dataclass(frozen=True)
class EvalPlan:
    """`repeats` episodes of each question. `max_failed`: the share of episodes that may break."""

    benchmark: str
    questions: tuple[Question, ...]
    repeats: int = 1
    concurrency: int = 1
    seed: int = 0
    max_failed: float = 0.0

    def __post_init__(self) -> None:
        for name, value in (("--repeats", self.repeats), ("--concurrency", self.concurrency)):
            if value < 1:
                raise UsageError(f"{name} {value}: at least 1")
        if not 0 <= self.max_failed <= 1:
            raise UsageError(f"--max-failed {self.max_failed}: a share of the episodes, 0 to 1")

    def episodes(self) -> list[Episode]:
        """Every question once, then every question again."""
        return [
            Episode(question, repeat, episode_seed(self.seed, question.id, repeat))
            for repeat in range(self.repeats)
            for question in self.questions
        ]

    def identity(
        self, team: Team, scheme: str, declared: Mapping[str, Any], resources: Resources | None = None
    ) -> dict[str, Json]:
        """What must be the same for rows to belong together; concurrency and thresholds may differ.

        `declared` is what the engine says of its scheme and weights, see `summary.declare_engine`; `resources` what
        the tools read.
        """
        read = resources or Resources()
        return {
            "benchmark": self.benchmark,
            "questions": len(self.questions),
            "questions_sha256": _digest([question.for_evaluation() for question in self.questions]),
            "repeats": self.repeats,
            "seed": self.seed,
            "team": team.name,
            "team_sha256": _digest(team.model_dump(mode="json", exclude={"scheme"})),
            "model": team.base.model,
            "model_sha256": declared.get("backbone_hash"),
            "adapters": {name: str(adapter["hash"]) for name, adapter in declared.get("adapters", {}).items()},
            "dtype": declared.get("dtype", team.base.dtype),
            "scheme": scheme,
            "scheme_options": declared.get("options"),
            "maps_sha256": declared.get("maps_sha256"),
            "corpus_sha256": read.corpus_sha256,
            "cassette": read.cassette and Path(read.cassette).name,
        }

    def made_by(self, declared: Mapping[str, Any]) -> dict[str, Json]:
        """What times depend on, beside what is evaluated."""
        return {
            "concurrency": self.concurrency,
            **{name: declared.get(name) for name in ("device", "threads", "backend")},
        }


def episode_seed(seed: int, question_id: str, repeat: int) -> int:
    """The seed of one episode; `agentrt run --seed` with it gives the same tokens."""
    digest = hashlib.sha256(f"{seed}\0{question_id}\0{repeat}".encode()).digest()
    return int.from_bytes(digest[:4], "big")


def pick(questions: Sequence[Question], limit: int | None) -> tuple[Question, ...]:
    """The first `limit` questions. Raises UsageError for a limit below 1."""
    if limit is not None and limit < 1:
        raise UsageError(f"--limit {limit}: at least 1 question")
    return tuple(questions[:limit])


def _digest(value: Sequence[Mapping[str, object]] | Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
