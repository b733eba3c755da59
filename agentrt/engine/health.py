"""Whether an engine serves, and how busy it is: for probes, drains and the bound of its queue."""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from agentrt.engine.admission import num_short_of_room
from agentrt.engine.work import SessionWork
from agentrt.errors import QueueFullError

EngineStatus = Literal["ok", "draining", "closed", "failed", "forked"]
"""ok: takes work. draining: finishes what it has. failed: its worker died. forked: it lives in another process."""


@dataclass(frozen=True)
class EngineHealth:
    """A moment of an engine. `waiting` turns were submitted and have no token yet, `decoding` ones have."""

    status: EngineStatus
    error: str | None = None
    sessions: int = 0
    waiting: int = 0
    decoding: int = 0
    waiting_for_room: int = 0
    """Of the waiting turns, those that the KV budget had no room for yet."""
    owed_passes: int = 0
    """Passes that ended turns left to be run."""
    step_s: float = 0.0
    """How long the step in flight has been running; 0 between steps."""
    held_bytes: int = 0

    @property
    def ok(self) -> bool:
        return self.status == "ok"


def health_of(
    status: EngineStatus, error: str | None, sessions: Iterable[SessionWork], stepping: float | None, held_bytes: int
) -> EngineHealth:
    """To be called under the engine's lock. `stepping`: when the step in flight began, on `time.perf_counter`."""
    sessions = list(sessions)
    waiting = num_waiting(sessions)
    return EngineHealth(
        status,
        error,
        sessions=len(sessions),
        waiting=waiting,
        decoding=sum(session.turn is not None for session in sessions) - waiting,
        waiting_for_room=num_short_of_room(sessions),
        owed_passes=sum(len(session.pending) for session in sessions),
        step_s=0.0 if stepping is None else time.perf_counter() - stepping,
        held_bytes=held_bytes,
    )


def num_waiting(sessions: Iterable[SessionWork]) -> int:
    """Turns that were submitted and have no token yet."""
    return sum(session.turn is not None and not session.turn.token_ids for session in sessions)


def check_queue(sessions: Iterable[SessionWork], max_waiting: int | None) -> None:
    """Whether one more turn may wait. Raises QueueFullError."""
    waiting = num_waiting(sessions)
    if max_waiting is not None and waiting >= max_waiting:
        raise QueueFullError(
            f"{waiting} turns wait for their first token, and no more may (max_waiting); "
            "try again later, or raise max_waiting in EngineConfig"
        )


def drained(sessions: Iterable[SessionWork]) -> bool:
    """No turn runs or waits, and no pass is owed but those that failed."""
    return all(s.turn is None and (not s.pending or s.failure is not None) for s in sessions)
