"""Reads training files of any making as running text: what an adapter saw, with the place of each row.

Recorded trajectories (token ids) are decoded; rows of fields (`turns`) give calls and observations; every other row
gives its strings, a prompt joined to its completion. Knows no team.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from agentrt.errors import DataError
from agentrt.questions.rows import read_rows
from agentrt.runtime.ports import Tokenizer

_PAIRS: Final = (("prompt", "completion"), ("input", "output"), ("instruction", "output"))
"""Keys of a row whose texts are one text."""


class Text(NamedTuple):
    """`place`: "file:line" of its row."""

    place: str
    text: str


@dataclass
class TrainingFile:
    """`texts` hold labels, if the file has any; `calls` (name, place) and `observations` are those told as fields."""

    texts: list[Text] = field(default_factory=list)
    calls: list[tuple[str, str]] = field(default_factory=list)
    observations: list[Text] = field(default_factory=list)


def read_training_file(path: Path, tokenizer: Tokenizer | None) -> TrainingFile:
    """Everything in a JSON or JSONL file that an adapter could have learned from.

    Raises UsageError where it cannot be opened, DataError where it is no JSON, holds token ids and no tokenizer is
    given to read them, or holds no text at all.
    """
    found = TrainingFile()
    for row in read_rows(path):
        value = row.value
        if isinstance(value, dict) and isinstance(value.get("turns"), list):
            _read_turns(value["turns"], row.place, found)
        elif isinstance(value, dict) and isinstance(value.get("token_ids"), list):
            if tokenizer is None:
                raise DataError(
                    f"{row.place}: token ids, and the backbone whose tokens they are is not on this machine"
                )
            found.texts.append(Text(row.place, _decoded(value["token_ids"], row.place, tokenizer)))
        else:
            found.texts += [Text(row.place, text) for text in _strings(value)]
    if not (found.texts or found.calls):
        raise DataError(f"{path}: no text to compare; give the file that the adapters were trained on")
    return found


def _read_turns(turns: list[Any], place: str, found: TrainingFile) -> None:
    for turn in turns:
        if not isinstance(turn, dict):
            raise DataError(f"{place}: a turn is {json.dumps(turn)[:40]}, not an object")
        if turn.get("action") and turn.get("well_formed", True):
            found.calls.append((str(turn["action"]), place))
        if turn.get("observation"):
            found.observations.append(Text(place, str(turn["observation"])))


def _decoded(token_ids: list[Any], place: str, tokenizer: Tokenizer) -> str:
    if not all(type(token_id) is int and token_id >= 0 for token_id in token_ids):
        raise DataError(f"{place}: token_ids are no list of token ids; derive it again")
    return tokenizer.decode(token_ids)


def _strings(value: object) -> Iterator[str]:
    """Every string in a row, pairs of `_PAIRS` as one."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)
    elif isinstance(value, dict):
        joined: set[str] = set()
        for first, second in _PAIRS:
            pair = value.get(first), value.get(second)
            if not joined and isinstance(pair[0], str) and isinstance(pair[1], str):
                joined = {first, second}
                yield pair[0] + pair[1]
        for key, inner in value.items():
            if key not in joined:
                yield from _strings(inner)
