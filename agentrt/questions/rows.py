"""Raw rows of a data file, each with its line: JSONL, one JSON list, or one JSON object of named rows.

Knows JSON and lines, not what a row means.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from agentrt.errors import DataError, UsageError

_DECODER: Final = json.JSONDecoder()
_BLANK: Final = " \t\r\n"


class RawRow(NamedTuple):
    """place: "file:line" of where the row begins; name: its key in a JSON object of rows, else ""."""

    place: str
    name: str
    value: object


def read_rows(path: Path, *, unreadable: Callable[[str, str], None] | None = None) -> Iterator[RawRow]:
    """All rows of a file, in its order.

    A file that begins with "[" is a list of rows (HotpotQA's own form). Else, if its first line is a row by itself,
    or its name ends in .jsonl, it has one row a line. Else it is an object of named rows (ScienceQA's own form).
    `unreadable(place, why)` is told of each line that is not JSON, and the rest is read; without it the first is an
    error. Raises UsageError where the file cannot be opened, DataError where it is not UTF-8 JSON or holds no row.
    """
    text = _read_text(path)
    start = _skip_blank(text, 0)
    if start == len(text):
        raise DataError(f"{path}:1: the file is empty; it must hold rows as JSONL or JSON")
    if text[start] == "[":
        yield from _document(path, text, start, named=False)
    elif path.suffix == ".jsonl" or _is_row(text[start:].split("\n", 1)[0]):
        yield from _lines(path, text, unreadable)
    elif text[start] == "{":
        yield from _document(path, text, start, named=True)
    else:
        raise DataError(f"{path}:1: not JSON; give rows as JSONL or in the dataset's own JSON")


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise DataError(f"{path}:{line}: not UTF-8 text; save the file as UTF-8 (or unpack it)") from error
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}; give the path of a file of rows") from error


def _is_row(line: str) -> bool:
    try:
        value = json.loads(line)
    except ValueError:
        return False
    return isinstance(value, dict) and "question" in value


def _lines(path: Path, text: str, unreadable: Callable[[str, str], None] | None) -> Iterator[RawRow]:
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        place = f"{path}:{number}"
        try:
            value = json.loads(line)
        except ValueError as error:
            if unreadable is None:
                raise DataError(f"{place}: not a JSON object ({error}); write one row a line") from error
            unreadable(place, str(error))
            continue
        yield RawRow(place, "", value)


def _document(path: Path, text: str, start: int, *, named: bool) -> Iterator[RawRow]:
    """The members of one list or object, decoded one by one so that each keeps its line."""
    line, counted = 1, 0

    def fail(position: int, what: str) -> DataError:
        return DataError(f"{path}:{text.count(chr(10), 0, position) + 1}: {what}; is the file complete?")

    def decode(position: int) -> tuple[object, int]:
        try:
            return _DECODER.raw_decode(text, position)
        except ValueError as error:
            raise fail(getattr(error, "pos", position), f"not JSON ({error})") from error

    closing = "}" if named else "]"
    position = _skip_blank(text, start + 1)
    if text[position : position + 1] == closing:
        raise DataError(f"{path}:1: the file holds no row")
    while True:
        line, counted = line + text.count("\n", counted, position), position
        place, name = f"{path}:{line}", ""
        if named:
            key, position = decode(position)
            position = _skip_blank(text, position)
            if not isinstance(key, str) or text[position : position + 1] != ":":
                raise fail(position, "expected a name and a colon")
            name, position = key, _skip_blank(text, position + 1)
        value, position = decode(position)
        yield RawRow(place, name, value)
        position = _skip_blank(text, position)
        separator = text[position : position + 1]
        if separator == closing:
            break
        if separator != ",":
            raise fail(position, f"expected a comma or {closing!r}")
        position = _skip_blank(text, position + 1)
    rest = _skip_blank(text, position + 1)
    if rest != len(text):
        raise fail(rest, "more text after the end of the JSON")


def _skip_blank(text: str, position: int) -> int:
    while position < len(text) and text[position] in _BLANK:
        position += 1
    return position
