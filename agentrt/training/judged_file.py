"""Episodes of an evaluation, to learn verdicts from: what the team said, and the verdict that its score gives.

So the role that judges learns on the team's own answers, right and wrong ones, which no teacher can make up.
"""

from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict

from agentrt.config.team import Team
from agentrt.errors import UsageError
from agentrt.runtime.result import EpisodeResult
from agentrt.training.sources import Skipped
from agentrt.training.told import Told, ToldField, UntellableError, read_told

EPISODES: Final = "episodes.jsonl"
"""The file of an evaluation's folder that holds them."""

_WORDS: Final = ("wrong", "right")
_WRITTEN: Final = ("thought", "action", "argument", "call", "verdict")


class _Row(BaseModel):
    """What is needed of an evaluation's row."""

    model_config = ConfigDict(extra="ignore")

    id: str
    correct: bool
    prediction: str | None
    result: EpisodeResult | None


def read_judged(path: Path, team: Team) -> tuple[list[Told], list[Skipped]]:
    """Episodes of which the judging role is to learn its last turn, and what was left out, each with its place.

    Where its thought ends with the verdict ("..., so Bonn is wrong."), that word is mended too. Raises UsageError for a
    file that cannot be read, and for a team whose verdicts are not right and wrong.
    """
    judges = [node for node in team.flow.role_nodes().values() if node.emits == "verdict"]
    if not judges or not all(isinstance(node.choices, tuple) and {*_WORDS} <= {*node.choices} for node in judges):
        raise UsageError(f"{path}: scores say right or wrong, and the team has no role that writes these verdicts")

    def tell(row: _Row, name: str, place: str) -> Told:
        if row.result is None or row.prediction is None:
            raise UntellableError("it has no answer")
        if row.result.parse_failures:
            raise UntellableError("an action is not well formed")
        fields = _fields(row.result, team)
        last = max((at for at, field in enumerate(fields) if field.kind == "verdict"), default=-1)
        if last < 0 or any(field.kind == "argument" for field in fields[last:]):
            raise UntellableError("its answer was not judged")
        judged = _mended(fields[: last + 1], _WORDS[row.correct])
        return Told(name, row.id, row.result.question, tuple(judged), place)

    return read_told(path, _Row, tell)


def _fields(result: EpisodeResult, team: Team) -> list[ToldField]:
    """All fields in order, none of them taught."""
    seen = iter([act.observation for act in result.actions if act.observation is not None])
    fields: list[ToldField] = []
    for span in result.spans:
        if span.kind == "observation":
            fields.append(ToldField("observation", next(seen, "")))
        elif span.path is not None and span.kind in _WRITTEN:
            closed = span.kind in ("argument", "verdict")
            text = span.text.strip().removesuffix(team.dialect.close).rstrip() if closed else span.text.strip()
            fields.append(ToldField(span.kind, text, span.author, taught=False))  # type: ignore[arg-type]  # of _WRITTEN
    return fields


def _mended(fields: list[ToldField], verdict: str) -> list[ToldField]:
    """With the true verdict at the end, which is taught as is the judge's thought before it."""
    *before, last = fields
    judge = last.role
    if before and (thought := before[-1]).kind == "thought" and thought.role == judge:
        text = thought.text
        for word in _WORDS:
            if text.endswith(f" {word}."):
                text = f"{text.removesuffix(f'{word}.')}{verdict}."
        before[-1] = thought._replace(text=text, taught=True)
    return [*before, last._replace(text=verdict, taught=True)]
