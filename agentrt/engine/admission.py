"""Which waiting turns start. One that the KV budget has no room for waits while others run; nobody is evicted for it.

Sessions that have begun go first, oldest turn first, since only their going on frees their slots; those of them that
fit need not wait for one that does not. Then new sessions, in the order they came: none passes one that waits for room.
"""

from collections.abc import Iterable, Sequence

from agentrt.engine.work import SessionWork, TurnWork
from agentrt.errors import CacheFullError, TurnCancelledError


def admit(sessions: Sequence[SessionWork], budget_bytes: int | None) -> int:
    """Drop cancelled turns and start those that can start; returns how many began to wait for room.

    A turn that needs more than the whole budget is refused, and so is one that waits when nothing runs any more: what
    holds the room then are idle sessions, and nobody knows for how long. To be called under the engine's lock.
    """
    _drop(sessions)
    began_to_wait = 0
    while (waiting := _queue(sessions)) and (short := _start(waiting, budget_bytes)):
        if any(map(_runs, sessions)):
            began_to_wait = sum(not turn.short_of_room for turn in short)
            for turn in short:
                turn.short_of_room = True
            break
        for turn, error in short.items():
            turn.undo(error)
    return began_to_wait


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
    return turn.session.sharing.kv_bytes == 0


def _start(waiting: Iterable[TurnWork], budget_bytes: int | None) -> dict[TurnWork, CacheFullError]:
    """Start what fits, refuse what never can; the others of those tried, with what they lack."""
    short: dict[TurnWork, CacheFullError] = {}
    for turn in waiting:
        if short and _is_new(turn):
            break
        try:
            turn.admit()
        except CacheFullError as error:
            if budget_bytes is not None and 0 < error.needed_bytes <= budget_bytes:
                short[turn] = error
            else:
                turn.undo(error)
        except BaseException as error:
            turn.undo(error)
    return short


def _runs(work: SessionWork) -> bool:
    """Whether a turn of the session, or a pass that an earlier one left, is under way; either ends by itself."""
    return (work.turn is not None and work.turn.admitted) or (bool(work.pending) and work.failure is None)
