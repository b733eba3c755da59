"""An episode as a file tells it: in words, field by field. Knows no tokens and no team's flow."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import ValidationError

from agentrt.config.flow import Emits
from agentrt.errors import UsageError
from agentrt.training.sources import Skipped


class ToldField(NamedTuple):
    """What somebody wrote, on one line. `role` is empty where the file does not say whose it is."""

    kind: Emits | Literal["observation"]
    text: str
    role: str = ""
    taught: bool = True


@dataclass(frozen=True)
class Told:
    """`question_id` decides which side of the held-out split it is on; `place` is "file:line"."""

    id: str
    question_id: str
    question: str
    fields: tuple[ToldField, ...]
    place: str


class UntellableError(Exception):
    """A row that cannot be used; the message is the reason, "what is wrong: the value", the value left out if none."""


class JsonLine(NamedTuple):
    """One line of a file: its value, or why it has none."""

    place: str
    value: object
    fault: str = ""


def json_lines(path: Path) -> Iterator[JsonLine]:
    """The lines that are not blank. Raises UsageError for a file that is no text, or is not there."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: cannot be read as UTF-8 text ({error})") from None
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        place = f"{path}:{number}"
        try:
            yield JsonLine(place, json.loads(line))
        except ValueError as error:
            yield JsonLine(place, None, f"it is not JSON: {error}")


def unfit(line: JsonLine, error: ValidationError) -> Skipped:
    """The skipped row for values that do not fit, under the row's own id if it has one."""
    first = error.errors(include_url=False, include_context=False)[0]
    field = ".".join(str(part) for part in first["loc"]) or "row"
    named = line.value.get("id") if isinstance(line.value, dict) else None
    return Skipped(str(named or line.place), f"its {field} cannot be used: {first['msg'].lower()}", line.place)
