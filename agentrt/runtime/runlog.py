"""The folder of one run: `events.jsonl`, written line by line as things happen, and `result.json` at the end."""

import json
import os
import threading
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from platform import python_version
from typing import Final, NamedTuple, TextIO

from agentrt.errors import DataError
from agentrt.runtime.events import SCHEMA_VERSION, Event, Token, parse_event, to_json
from agentrt.runtime.result import EpisodeResult
from agentrt_tools import Json

EVENTS_FILE: Final = "events.jsonl"
RESULT_FILE: Final = "result.json"


class RunLog:
    """Writes a run folder. The first line of the events is a header; every line is flushed when it is written.

    Tokens are not logged: the finished turn has their text. May be used from several threads, closed twice.
    """

    def __init__(self, folder: Path, header: Mapping[str, Json]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._lock = threading.Lock()
        self._file: TextIO = (folder / EVENTS_FILE).open("w", encoding="utf-8")
        self._write(json.dumps({"schema_version": SCHEMA_VERSION, "versions": versions(), **header}))

    def event(self, event: Event) -> None:
        if not isinstance(event, Token):
            self._write(to_json(event))

    def result(self, result: EpisodeResult) -> None:
        """Put the result in its place in one step: a reader sees the old file or the new one, never half of one."""
        draft = self.folder / f"{RESULT_FILE}.draft"
        draft.write_text(result.model_dump_json(), encoding="utf-8")
        os.replace(draft, self.folder / RESULT_FILE)

    def close(self) -> None:
        with self._lock:
            self._file.close()

    def _write(self, line: str) -> None:
        with self._lock:
            self._file.write(line + "\n")
            self._file.flush()


class LoggedRun(NamedTuple):
    header: dict[str, Json]
    events: list[Event]


def read_run(folder: Path) -> LoggedRun:
    """Read a run folder's events. A last line torn by a crash is left out. Raises DataError for any other."""
    file = folder / EVENTS_FILE
    try:
        lines = file.read_text(encoding="utf-8", errors="replace").split("\n")
    except FileNotFoundError:
        raise DataError(f"{folder} is no run folder: it has no {EVENTS_FILE}") from None
    lines.pop()  # empty, or torn: every whole line ends in a line end
    if not lines:
        raise DataError(f"{file}:1: the header is missing")
    events: list[Event] = []
    for number, line in enumerate(lines, 1):
        try:
            if number == 1:
                header = json.loads(line)
            else:
                events.append(parse_event(line))
        except ValueError as error:
            raise DataError(f"{file}:{number}: not a line that a run writes ({error})") from None
    return LoggedRun(header, events)


def versions() -> dict[str, Json]:
    """What the run's numbers depend on."""
    packages = ("agentrt", "torch", "transformers", "peft", "langgraph")
    return {"python": python_version(), **{name: _version(name) for name in packages}}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
