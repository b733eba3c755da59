"""Which waiting turns start. One without room in the KV budget waits while room may come; nobody is evicted for it.

Sessions that have begun go first, oldest turn first, since only their going on frees their slots; those of them that
fit need not wait for one that does not. Then new sessions, in the order they came: none passes one that waits for room.
"""

import threading
import time
from collections.abc import Callable, Iterable, Sequence

from agentrt.engine.work import SessionWork, TurnWork
from agentrt.errors import CacheFullError, TurnCancelledError


class Admission:
    """Admits turns to one engine's budget. To be used under the engine's lock.

    A turn that needs more than the whole budget is refused at once. Another one waits as long as anything runs. When
    nothing does, it waits for sessions between two turns, whose callers may crop or close them: at most `timeout_s`.
    Where there is none, since every session that holds slots waits for room itself, the last of them is refused.
    """

    def __init__(
        self, budget_bytes: int | None, timeout_s: float, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._budget_bytes = budget_bytes
        self._timeout_s = timeout_s
        self._clock = clock
        self._idle_since: float | None = None
        """Since when nothing runs and a turn waits for room."""
        self.patience_s: float | None = None
        """How long from the last `admit` until a turn that waits is refused; None: not by time alone."""

    def admit(self, sessions: Sequence[SessionWork]) -> int:
        """Drop cancelled turns and start those that can start; returns how many began to wait for room."""
        _drop(sessions)
        self.patience_s = None
        while short := self._start(_queue(sessions)):
            if any(map(_runs, sessions)):
                self._idle_since = None
                break
            if not self._refuse_one(sessions, short):
                break
        else:
            self._idle_since = None
        began_to_wait = sum(not turn.short_of_room for turn in short)
        for turn in short:
            turn.short_of_room = True
        return began_to_wait

    def _start(self, waiting: Iterable[TurnWork]) -> dict[TurnWork, CacheFullError]:
        """Start what fits, refuse what never can; the others of those tried, with what they lack."""
        short: dict[TurnWork, CacheFullError] = {}
        for turn in waiting:
            if short and _is_new(turn):
                break
            try:
                turn.admit()
            except CacheFullError as error:
                if self._budget_bytes is not None and 0 < error.needed_bytes <= self._budget_bytes:
                    short[turn] = error
                else:
                    turn.undo(error)
            except BaseException as error:
                turn.undo(error)
        return short

    def _refuse_one(self, sessions: Iterable[SessionWork], short: dict[TurnWork, CacheFullError]) -> bool:
        """Nothing runs: refuse a turn that no room will come for, or that has waited long enough; whether there was
        one."""
        now = self._clock()
        if self._idle_since is None:
            self._idle_since = now
        if not any(work.turn is None and work.sharing.holds_slots for work in sessions):
            turn = max(short, key=lambda each: (not _is_new(each), each.submitted))
            reason = "every session that holds slots waits for room"
        else:
            left = {each: max(each.submitted, self._idle_since) + self._timeout_s - now for each in short}
            turn = min(left, key=left.__getitem__)
            if left[turn] > 0:
                self.patience_s = min(left[turn], threading.TIMEOUT_MAX)
                return False
            reason = (
                f"it waited {self._timeout_s:g} s in which nothing ran for one of the sessions that hold slots to be "
                "closed or cropped (room_timeout_s in EngineConfig)"
            )
        turn.undo(CacheFullError(f"{short[turn]}; {reason}", short[turn].needed_bytes))
        return True


def num_short_of_room(sessions: Iterable[SessionWork]) -> int:
    """Turns that the KV budget had no room for yet, those behind them not counted."""
    turns = (session.turn for session in sessions)
    return sum(turn is not None and not turn.admitted and turn.short_of_room for turn in turns)


def _drop(sessions: Iterable[SessionWork]) -> None:
    for work in sessions:
        if work.turn is not None and work.turn.cancelled:
            work.turn.undo(TurnCancelledError("the turn was cancelled"))
        elif work.turn is not None and work.failure is not None:
            work.turn.undo(work.failure)


def _queue(sessions: Iterable[SessionWork]) -> list[TurnWork]:
    """Turns that have not started and whose session is quiet, in the order they may start."""
    turns = (work.turn for work in sessions if not work.pending)
    waiting = [turn for turn in turns if turn is not None and not turn.admitted]
    return sorted(waiting, key=lambda turn: (_is_new(turn), turn.submitted))


def _is_new(turn: TurnWork) -> bool:
    return not turn.session.sharing.holds_slots


def _runs(work: SessionWork) -> bool:
    """Whether a turn of the session, or a pass that an earlier one left, is under way; either ends by itself."""
    return (work.turn is not None and work.turn.admitted) or (bool(work.pending) and work.failure is None)
