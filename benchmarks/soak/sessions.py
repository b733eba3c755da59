"""Bare sessions of the engine: turns that end or are cancelled, forks, crops, and more turns at once than may wait."""

import random
from collections import Counter
from contextlib import suppress
from typing import NamedTuple

from agentrt import CacheFullError, QueueFullError, Sampling, TurnCancelledError
from agentrt.engine import Engine, Session, Turn
from benchmarks.soak.records import Cropped, Happening, History, Turned

MOST_BRANCHES = 3
"""Of one session and its forks at a time."""
MOST_OPERATIONS = 9
MOST_CONTEXT = 40
MOST_NEW = 24
LARGE = 0.8
"""Of the KV budget's tokens."""


class Branch:
    """A session, and what has been done to it with success."""

    def __init__(self, session: Session, history: History = ()) -> None:
        self.session, self.history = session, history


class Started(NamedTuple):
    """A turn of a branch that runs or waits."""

    branch: Branch
    adapter: str
    context: tuple[int, ...]
    turn: Turn

    def end(self) -> None:
        """Wait for it. Raises TurnCancelledError, unless the turn was faster, and CacheFullError."""
        self.branch.history += (Turned(self.adapter, self.context, self.turn.result.token_ids),)


class BareSessions:
    """Plays on one engine, each time with sessions of its own, and closes them; returns what each has come to."""

    def __init__(self, engine: Engine, rng: random.Random, counts: Counter[Happening]) -> None:
        self._engine, self._rng, self._counts = engine, rng, counts

    def play(self) -> list[History]:
        """One session and its forks, some operations on any of them."""
        branches = [self._open()]
        operations = (self._whole, self._whole, self._cancel, self._leave, self._crop)
        try:
            for _ in range(self._rng.randrange(2, MOST_OPERATIONS + 1)):
                branch = self._rng.choice(branches)
                if len(branches) < MOST_BRANCHES and self._rng.random() < 0.2:
                    branches.append(Branch(branch.session.fork(), branch.history))
                    self._counts["forks"] += 1
                else:
                    with suppress(QueueFullError):
                        self._rng.choice(operations)(branch)
        except CacheFullError:  # others may wait for what these hold
            self._counts["refused_for_room"] += 1
        finally:
            for branch in branches:
                branch.session.close()
        return [branch.history for branch in branches]

    def burst(self) -> list[History]:
        """More new sessions at once than may wait for their first token, and two that have no room beside each other;
        each is closed when its turn has ended."""
        branches = [self._open() for _ in range((self._engine.config.max_waiting or 0) + 4)]
        budget = self._engine.config.kv_budget_tokens or 0
        large = min(int(LARGE * budget), self._engine.max_context)
        taken: list[Started] = []
        try:
            for number, branch in enumerate(branches):
                with suppress(QueueFullError):
                    taken.append(self._start(branch, large if number < 2 else 0))
            for started in taken:
                try:
                    started.end()
                except CacheFullError:
                    self._counts["refused_for_room"] += 1
                started.branch.session.close()
        finally:
            for branch in branches:
                branch.session.close()
        return [started.branch.history for started in taken]

    def _open(self) -> Branch:
        self._counts["sessions"] += 1
        return Branch(self._engine.session())

    def _start(self, branch: Branch, reserved: int = 0) -> Started:
        """`reserved`: at least so many tokens, most of which it will not write. Raises QueueFullError."""
        rng, engine = self._rng, self._engine
        adapter = rng.choice(engine.adapter_names)
        context = tuple(rng.randrange(engine.backbone.vocab_size) for _ in range(rng.randrange(1, MOST_CONTEXT)))
        wanted = rng.randrange(1, MOST_NEW)
        most = max(wanted, reserved - len(context))
        sampling = Sampling(max_new_tokens=most, stop=lambda said: len(said) == wanted)
        try:
            turn = branch.session.turn(adapter, context, sampling)
        except QueueFullError:
            self._counts["refused_by_the_queue"] += 1
            raise
        self._counts["turns"] += 1
        return Started(branch, adapter, context, turn)

    def _whole(self, branch: Branch) -> None:
        self._start(branch).end()

    def _cancel(self, branch: Branch) -> None:
        """Wherever it is: waiting, reading or writing."""
        started = self._start(branch)
        tokens = iter(started.turn)
        for _ in range(self._rng.randrange(3)):
            next(tokens, None)
        started.turn.cancel()
        self._end_cancelled(started)

    def _leave(self, branch: Branch) -> None:
        """The reader goes away, perhaps before the first token."""
        started = self._start(branch)
        tokens = iter(started.turn)
        for _ in range(self._rng.randrange(3)):
            next(tokens, None)
        tokens.close()
        self._end_cancelled(started)

    def _end_cancelled(self, started: Started) -> None:
        try:
            started.end()
        except TurnCancelledError:
            self._counts["cancelled_turns"] += 1

    def _crop(self, branch: Branch) -> None:
        length = self._rng.randrange(len(branch.session.trajectory) + 1)
        branch.session.crop(length)
        branch.history += (Cropped(length),)
        self._counts["crops"] += 1
