"""An episode as a file tells it: in words, field by field. Knows no tokens and no team's flow."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError

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
    """`place` is "file:line"."""

    id: str
    question: str
    fields: tuple[ToldField, ...]
    place: str


class UntellableError(Exception):
    """A row that cannot be used; the message is the reason, "what is wrong: the value", the value left out if none."""


Row = TypeVar("Row", bound=BaseModel)


def read_told(path: Path, model: type[Row], tell: Callable[[Row, str, str], Told]) -> tuple[list[Told], list[Skipped]]:
    """What `tell(row, name, place)` makes of each line's JSON, and what was left out, each with its place.

    A row's name is its `id`, else its place. `tell` may raise UntellableError. Raises UsageError for a file that
    cannot be read.
    """
    told: list[Told] = []
    skipped: list[Skipped] = []
    for place, line in _lines(path):
        name = f"{path.name}:{place.rpartition(':')[2]}"
        try:
            value = json.loads(line)
            name = str((isinstance(value, dict) and value.get("id")) or name)
            told.append(tell(model.model_validate(value), name, place))
        except ValidationError as error:  # a ValueError too
            skipped.append(Skipped(name, _misfit(error), place))
        except ValueError as error:
            skipped.append(Skipped(name, f"it is not JSON: {error}", place))
        except UntellableError as error:
            skipped.append(Skipped(name, str(error), place))
    return told, skipped


def _lines(path: Path) -> Iterator[tuple[str, str]]:
    """Place and text of each line that is not blank."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: cannot be read as UTF-8 text ({error})") from None
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield f"{path}:{number}", line


def _misfit(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_context=False)[0]
    field = ".".join(str(part) for part in first["loc"]) or "row"
    return f"its {field} cannot be used: {first['msg'].lower()}"
