"""Recorded trajectories, and what one role learns from them. Integers only: no text, no model."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final, NamedTuple

from agentrt.errors import DataError

_FIELDS: Final = frozenset({"thought", "action", "argument", "verdict", "call"})
"""Kinds of the spans that a role generates."""


class RecordedSpan(NamedTuple):
    """Tokens `[start, end)` of one author and kind. `taught` is False where the author erred on purpose."""

    start: int
    end: int
    author: str
    kind: str
    taught: bool = True


@dataclass(frozen=True)
class Recorded:
    """One finished episode as the runtime left it. `question_id`, the question on one line, decides which side of the
    held-out split it is on."""

    id: str
    question_id: str
    token_ids: tuple[int, ...]
    spans: tuple[RecordedSpan, ...]

    @property
    def fields(self) -> list[RecordedSpan]:
        """What roles generated: each is a turn, which has read all before it and leaves its last token to the next."""
        return [span for span in self.spans if span.kind in _FIELDS]


class TaughtField(NamedTuple):
    """Tokens `[start, end)` that a role is to write in one go."""

    kind: str
    start: int
    end: int


@dataclass(frozen=True)
class Example:
    """A token sequence and the fields of it that are learnt, at least one, in order; none starts at position 0.

    `own_rows` are the positions that the role itself runs through the model when the episode is served: of each of its
    turns, what it reads first and all it writes but the last token, which the next turn reads. Increasing.
    `since` says of each where its turn starts; what lies before has been run by earlier turns, or is the preamble.
    """

    id: str
    question_id: str
    token_ids: tuple[int, ...]
    fields: tuple[TaughtField, ...]
    own_rows: tuple[int, ...] = ()
    since: tuple[int, ...] = ()

    @cached_property
    def targets(self) -> tuple[int, ...]:
        """The positions whose token is learnt; a target at `p` is predicted from position `p - 1`."""
        return tuple(position for field in self.fields for position in range(field.start, field.end))


def taught_field(span: RecordedSpan) -> TaughtField:
    """A span as a field to learn, without a first token that nothing predicts."""
    return TaughtField(span.kind, max(span.start, 1), span.end)


def role_example(recorded: Recorded, role: str) -> Example | None:
    """What `role` learns: its own taught fields, given everything before; None where it wrote nothing.

    The sequence ends with the last target: nothing after it could matter.
    """
    fields = tuple(taught_field(span) for span in recorded.fields if span.author == role and span.taught)
    if not fields:
        return None
    own_rows: list[int] = []
    since: list[int] = []
    unread, preamble, end = 0, len(preamble_of(recorded)), fields[-1].end
    for span in recorded.fields:
        if span.author == role:
            rows = range(unread, min(span.end, end) - 1)
            own_rows += rows
            since += [min(max(unread, preamble), span.start - 1)] * len(rows)
        unread = span.end - 1
    ids = recorded.token_ids[:end]
    return Example(recorded.id, recorded.question_id, ids, fields, tuple(own_rows), tuple(since))


class RecordedTurn(NamedTuple):
    """A role reads `context` behind the turn before, then generates `generated`."""

    role: str
    context: tuple[int, ...]
    generated: tuple[int, ...]


def preamble_of(recorded: Recorded) -> tuple[int, ...]:
    """The tokens that every episode of the team starts with."""
    first = recorded.spans[0] if recorded.spans else None
    return recorded.token_ids[: first.end] if first is not None and first.kind == "preamble" else ()


def turns_of(recorded: Recorded) -> list[RecordedTurn]:
    """The turns behind the preamble; what nobody has read at the end is left out."""
    turns, start = [], len(preamble_of(recorded))
    for span in recorded.fields:
        ids = recorded.token_ids
        turns.append(RecordedTurn(span.author, ids[start : span.start], ids[span.start : span.end]))
        start = span.end
    return turns


def write_recorded(path: Path, trajectories: Iterable[Recorded]) -> None:
    """One JSON object a line, keys sorted: equal trajectories give equal bytes."""
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for one in trajectories:
            row = {
                "id": one.id,
                "question_id": one.question_id,
                "token_ids": one.token_ids,
                "spans": one.spans,
            }
            file.write(json.dumps(row, sort_keys=True) + "\n")


def read_recorded(path: Path) -> Iterator[Recorded]:
    """Raises DataError with file:line for a row that is not a recorded trajectory."""
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            try:
                row = json.loads(line)
                spans = tuple(RecordedSpan(*span) for span in row["spans"])
                recorded = Recorded(row["id"], row["question_id"], tuple(row["token_ids"]), spans)
            except (ValueError, KeyError, TypeError) as error:
                raise DataError(
                    f"{path.name}:{number}: not a recorded trajectory ({error!r}); derive it again"
                ) from error
            if any(not 0 <= span.start <= span.end <= len(recorded.token_ids) for span in spans):
                raise DataError(f"{path.name}:{number}: a span lies outside its {len(recorded.token_ids)} tokens")
            yield recorded
