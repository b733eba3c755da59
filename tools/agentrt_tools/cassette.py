"""Tool calls on disk: recorded as they happen, and played back without the tools.

A cassette is a folder with `calls.jsonl`, one call a line. A call is found by tool, argument, question and the tool
state before it; a call recorded in another state or for another question stands in where all recordings of that tool
and argument agree. What a call did to the state is kept as the keys it changed.
"""

import json
import threading
from collections.abc import Mapping
from difflib import SequenceMatcher
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple, cast, get_args

from agentrt_tools.base import FailureKind, Json, ToolFailed, ToolResult
from agentrt_tools.runner import ToolCall

CALLS_FILE: Final = "calls.jsonl"


class CassetteError(ValueError):
    """A cassette that cannot be read; the message names file, line and fix."""


class CassetteMissError(CassetteError):
    """A call that was never recorded; the message shows the nearest one that was."""


class CallRequest(NamedTuple):
    """What a call was asked: `tool` is the registry name, `action` the name the model wrote, `nth` how often the same
    episode had asked the same before (a call that failed may succeed later), `state` the tool state before it."""

    action: str
    tool: str
    argument: str
    question: str = ""
    nth: int = 0
    state: Mapping[str, Json] = MappingProxyType({})

    @property
    def key(self) -> tuple[str, str, str]:
        return self.action, self.tool, self.argument


class Recorder:
    """Appends calls to a cassette, from any number of threads. A folder that has calls keeps them.

    Without a call there is an empty cassette, which plays an episode that calls nothing.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / CALLS_FILE
        self._path.touch()
        self._lock = threading.Lock()

    def record(self, asked: CallRequest, call: ToolCall) -> None:
        """Write one finished call; its line has left the program when this returns."""
        row = {**asked._asdict(), "state": dict(asked.state), **_outcome(call, asked.state)}
        line = json.dumps(row, ensure_ascii=True, sort_keys=True)
        with self._lock, self._path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")


class Cassette:
    """A recorded cassette, read once. A last line torn by a crash is left out. Raises CassetteError."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / CALLS_FILE
        self._rows: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
        try:
            lines = self._path.read_text(encoding="utf-8").split("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise CassetteError(f"{folder} is no cassette: {error}; record one with --record DIR") from error
        for number, line in enumerate(lines[:-1], 1):
            try:
                row = json.loads(line)
                key = row["action"], row["tool"], row["argument"]
                _ = row["question"], row["nth"], row["state"]
                _call(row, {})  # every line is sound before the first is played
            except (ValueError, KeyError, TypeError) as error:
                raise CassetteError(f"{self._path}:{number}: not a recorded call ({error}); record it again") from error
            self._rows.setdefault(key, []).append(row)

    def play(self, asked: CallRequest) -> ToolCall:
        """The recorded call; it takes no time. Raises CassetteMissError."""
        rows = self._rows.get(asked.key, [])
        wanted = {"question": asked.question, "nth": asked.nth, "state": dict(asked.state)}
        for row in rows:
            if all(row[name] == value for name, value in wanted.items()):
                return _call(row, asked.state)
        if len({json.dumps(row["outcome"], sort_keys=True) for row in rows}) == 1:
            return _call(rows[0], asked.state)
        raise CassetteMissError(self._miss(asked, recorded=bool(rows)))

    def _miss(self, asked: CallRequest, *, recorded: bool) -> str:
        missing = f"{self._path} has no call {_show(asked.key)}"
        if recorded:
            return f"{missing} in this state: it was recorded in others, with different results"
        nearest = max(self._rows, key=lambda other: _likeness(asked.key, other), default=None)
        return f"{missing}; " + (
            f"the nearest recorded call is {_show(nearest)}" if nearest else "it has no call at all"
        )


def _outcome(call: ToolCall, state: Mapping[str, Json]) -> dict[str, Json]:
    if call.failure is not None:
        failed = call.failure
        told = {"kind": failed.kind, "message": failed.message, "hint": failed.hint, "told": failed.told}
        return {"outcome": {"failure": cast(Json, told)}, "retries": call.retries}
    assert call.result is not None
    result = call.result
    outcome: dict[str, Json] = {
        "text": result.text,
        "facts": dict(result.facts),
        "titles": list(result.titles),
        "miss": result.miss,
        "changed": {name: value for name, value in result.state.items() if name not in state or state[name] != value},
        "removed": [name for name in state if name not in result.state],
    }
    return {"outcome": outcome, "retries": call.retries}


def _call(row: Mapping[str, Any], state: Mapping[str, Json]) -> ToolCall:
    """Raises KeyError or ValueError for a row that no recorder wrote."""
    outcome, retries = row["outcome"], int(row["retries"])
    if "failure" in outcome:
        failed = outcome["failure"]
        if failed["kind"] not in get_args(FailureKind):
            raise ValueError(f"no failure is of kind {failed['kind']!r}")
        failure = ToolFailed(failed["kind"], failed["message"], hint=failed["hint"], told=failed["told"])
        return ToolCall(None, failure, retries, 0.0)
    now = {name: value for name, value in state.items() if name not in outcome["removed"]}
    result = ToolResult(
        text=outcome["text"],
        facts=outcome["facts"],
        state={**now, **outcome["changed"]},
        titles=tuple(outcome["titles"]),
        miss=outcome["miss"],
    )
    return ToolCall(result, None, retries, 0.0)


def _show(key: tuple[str, str, str]) -> str:
    action, tool, argument = key
    return f"{action}[{argument}] of {tool}"


def _likeness(asked: tuple[str, str, str], other: tuple[str, str, str]) -> float:
    """The same action and tool count most, then how alike the arguments are."""
    alike = SequenceMatcher(None, asked[2].casefold(), other[2].casefold()).ratio()
    return alike + (asked[0] == other[0]) + (asked[1] == other[1])
