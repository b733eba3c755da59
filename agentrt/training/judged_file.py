"""Episodes of an evaluation, to learn verdicts from: what the team said, and the verdict that its score gives.

So the role that judges learns on the team's own answers, right and wrong ones, which no teacher can make up.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict

from agentrt.config.team import Team
from agentrt.errors import UsageError
from agentrt.runtime.result import EpisodeResult
from agentrt.training.pair_file import read_episode
from agentrt.training.sources import Skipped
from agentrt.training.told import Told, ToldField, UntellableError, read_told

EPISODES: Final = "episodes.jsonl"
"""The file of an evaluation's folder that holds them."""

_WORDS: Final = ("wrong", "right")


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
        before, judgement, role = _last_judgement(row.result)
        question, fields = read_episode(before, judgement, role, team)
        return Told(name, question, _mended(fields, _WORDS[row.correct]), place)

    return read_told(path, _Row, tell)


def _last_judgement(result: EpisodeResult) -> tuple[str, str, str]:
    """The text before the last answer's judgement, its text, and the role that wrote it.

    A thought that its limit cut off is no part of it: the runtime ended that, not the role. Raises UntellableError.
    """
    kinds = [span.kind for span in result.spans]
    end = max((at for at, kind in enumerate(kinds) if kind == "verdict"), default=-1) + 1
    if not end or {"argument", "call"} & {*kinds[end:]}:
        raise UntellableError("its answer was not judged")
    start = end - 1
    while start and kinds[start - 1] in ("label", "thought"):
        start -= 1
    texts = [span.text for span in result.spans[:end]]
    return "".join(texts[:start]), "".join(texts[start:]), result.spans[end - 1].author


def _mended(fields: Sequence[ToldField], verdict: str) -> tuple[ToldField, ...]:
    """With the true verdict at the end, and in the thought before it where that ends with one."""
    *before, last = fields
    if before and before[-1].taught:
        words, _, said = before[-1].text.rpartition(" ")
        if said.removesuffix(".") in _WORDS and said.endswith("."):
            before[-1] = before[-1]._replace(text=f"{words} {verdict}.")
    return (*before, last._replace(text=verdict))
