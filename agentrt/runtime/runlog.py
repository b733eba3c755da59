"""The folder of one run: `events.jsonl`, written line by line as things happen, and `result.json` at the end."""

import json
import os
import threading
from collections.abc import Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from platform import python_version
from typing import Final, NamedTuple, Self, TextIO

from agentrt.errors import DataError
from agentrt.runtime.events import (
    SCHEMA_VERSION,
    Event,
    RunFinished,
    RunResumed,
    Token,
    ToolCalled,
    ToolFinished,
    TurnFinished,
    TurnStarted,
    parse_event,
    to_json,
)
from agentrt.runtime.result import EpisodeResult
from agentrt_tools import Json

EVENTS_FILE: Final = "events.jsonl"
RESULT_FILE: Final = "result.json"


class RunLog:
    """Writes a run folder. The first line of the events is a header; every line is flushed when it is written.

    Tokens are not logged: the finished turn has their text. May be used from several threads, closed twice.
    """

    def __init__(self, folder: Path, file: TextIO) -> None:
        self.folder = folder
        self._lock = threading.Lock()
        self._file = file

    @classmethod
    def create(cls, folder: Path, header: Mapping[str, Json]) -> Self:
        """Start a folder anew, without the result of the run before."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / RESULT_FILE).unlink(missing_ok=True)
        log = cls(folder, (folder / EVENTS_FILE).open("w", encoding="utf-8"))
        log._write(json.dumps({"schema_version": SCHEMA_VERSION, "versions": versions(), **header}))
        return log

    @classmethod
    def reopen(cls, folder: Path) -> Self:
        """Go on with a folder that `read_run` can read; a torn last line is cut off."""
        file = folder / EVENTS_FILE
        with file.open("rb+") as torn:
            torn.truncate(torn.read().rfind(b"\n") + 1)
        return cls(folder, file.open("a", encoding="utf-8"))

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

    def standing(self) -> list[Event]:
        """The events without those that a crash took back, and without the end before the last resumption."""
        kept: list[Event] = []
        for event in self.events:
            if isinstance(event, RunResumed):
                kept = first_turns(kept, event.turns, event.observations)
            kept.append(event)
        return kept


def first_turns(events: Iterable[Event], turns: int, observations: int) -> list[Event]:
    """The events of the first turns and tool calls, without any end."""
    kept: list[Event] = []
    answered = 0
    for event in events:
        answered += isinstance(event, ToolFinished)
        match event:
            case TurnStarted() | TurnFinished():
                stands = event.turn <= turns
            case ToolCalled():
                stands = answered < observations
            case ToolFinished():
                stands = answered <= observations
            case _:
                stands = not isinstance(event, RunFinished)
        if stands:
            kept.append(event)
    return kept


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


def read_result(folder: Path) -> EpisodeResult | None:
    """The result in a run folder, None where there is none. Raises DataError for a file that holds no result."""
    file = folder / RESULT_FILE
    try:
        return EpisodeResult.model_validate_json(file.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError as error:
        message = f"{file}: not a result ({error}); delete it, and agentrt resume {folder} writes it again"
        raise DataError(message) from None


def versions() -> dict[str, Json]:
    """What the run's numbers depend on."""
    packages = ("agentrt", "torch", "transformers", "peft", "langgraph")
    return {"python": python_version(), **{name: _version(name) for name in packages}}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
