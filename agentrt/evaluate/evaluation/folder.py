"""An evaluation's folder: `eval.json` says what is evaluated, `episodes.jsonl` has the rows, `summary.json` the end.

Rows are flushed one by one, so an evaluation that was killed goes on where it was.
"""

import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self

from pydantic import ValidationError

from agentrt.errors import DataError, UsageError
from agentrt.evaluate.evaluation.row import EpisodeRow
from agentrt.evaluate.lines import append_line, read_lines, replace_file
from agentrt_tools import Json

HEADER: Final = "eval.json"
ROWS: Final = "episodes.jsonl"
SUMMARY: Final = "summary.json"


class EvalFolder:
    """`rows` are those found at the start and those written since. Safe from any thread."""

    def __init__(self, path: Path, rows: list[EpisodeRow]) -> None:
        self.path = path
        self.rows = rows
        self._lock = threading.Lock()

    @classmethod
    def create(cls, path: Path, identity: Mapping[str, Json]) -> Self:
        path.mkdir(parents=True)
        replace_file(path / HEADER, json.dumps(identity, indent=1) + "\n")
        (path / ROWS).touch()
        return cls(path, [])

    @classmethod
    def resume(cls, path: Path, identity: Mapping[str, Json]) -> Self:
        """Open a folder to go on. Raises UsageError where there is none or it evaluates something else, DataError for
        a row that cannot be read; a last line torn by a crash is dropped."""
        try:
            header = json.loads((path / HEADER).read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise UsageError(f"{path} is no evaluation: it has no {HEADER}") from None
        for name, value in identity.items():
            if header.get(name) != value:
                raise UsageError(
                    f"--resume {path.name}: its {name} is {header.get(name)!r}, now it is {value!r}; "
                    "resume with the same options, or start a new evaluation"
                )
        read_lines(path / ROWS, drop_torn=True)
        return cls(path, read_rows(path))

    def add(self, row: EpisodeRow) -> None:
        with self._lock:
            append_line(self.path / ROWS, row.model_dump_json())
            self.rows.append(row)

    def finish(self, summary: Mapping[str, object]) -> None:
        replace_file(self.path / SUMMARY, json.dumps(summary, indent=1, ensure_ascii=False) + "\n")


def read_rows(path: Path) -> list[EpisodeRow]:
    """The rows of a folder, whole lines only. Raises UsageError where there is none, DataError for a bad one."""
    try:
        lines = read_lines(path / ROWS)
    except FileNotFoundError:
        raise UsageError(f"{path} is no evaluation: it has no {ROWS}") from None
    rows = []
    for number, line in enumerate(lines, 1):
        try:
            rows.append(EpisodeRow.model_validate_json(line))
        except ValidationError as error:
            what = error.errors()[0]["msg"]
            raise DataError(f"{path / ROWS}:{number}: not a row of an evaluation ({what})") from error
    return rows
