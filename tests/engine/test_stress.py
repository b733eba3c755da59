"""Many threads, little room, and every disturbance at once: each session still says what it would have said alone.

Slots are poisoned, so a read of one that was given away shows. The turns that ended are run again, one after another.
"""

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import NamedTuple

import pytest

from agentrt.engine import Session, Turn
from agentrt.errors import CacheFullError, TurnCancelledError
from agentrt.model.sampling import Sampling
from benchmarks.soak.records import Cropped, Turned
from tests.models import AGENTS

THREADS = 6
OPERATIONS = 40
MOST_SESSIONS = 3
"""Of one thread at a time."""
PREAMBLES = ((7, 7, 7), (7, 7, 7, 8), (9, 9, 9, 9), ())
SCHEMES = ["pre_lr_shared", "rebase_shared:auto", "rebase_shared:lp/qkvo"]
MORE = ["non_shared", "rebase_shared:db", "rebase_shared:lp,lp_at=handover", "rebase_shared:auto/qkvo", "cacheblend"]


class Part(NamedTuple):
    """A session and what has been done to it with success."""

    session: Session
    preamble: tuple[int, ...]
    history: list[Turned | Cropped]


class Player:
    """The sessions of one thread. `running`: turns of all threads, for whoever cancels them at random."""

    def __init__(self, engine, running, seed):
        self.engine, self.running = engine, running
        self.rng = random.Random(seed)
        self.parts, self.ended = [], []

    def play(self):
        ways = (self.turn, self.turn, self.turn, self.leave, self.close_at_once, self.crop, self.fork, self.settle)
        for _ in range(OPERATIONS):
            part = self.rng.choice(self.parts) if self.parts else self.open()
            try:
                with suppress(TurnCancelledError):
                    self.rng.choice(ways)(part)
            except CacheFullError:
                self.close(part)  # others may wait for what it holds
        for part in list(self.parts):
            self.close(part)
        return self.ended

    def open(self):
        preamble = self.rng.choice(PREAMBLES)
        self.parts.append(Part(self.engine.session(preamble), preamble, []))
        return self.parts[-1]

    def close(self, part):
        part.session.close()
        if part in self.parts:
            self.parts.remove(part)
            self.ended.append(part)

    def start(self, part) -> tuple[str, tuple[int, ...], Turn]:
        adapter = self.rng.choice(AGENTS)
        context = tuple(self.rng.randrange(211) for _ in range(self.rng.randrange(1, 14)))
        turn = part.session.turn(adapter, context, Sampling(max_new_tokens=self.rng.randrange(1, 9)))
        self.running.append(turn)
        return adapter, context, turn

    def note(self, part, adapter, context, turn):
        """Raises TurnCancelledError, unless the turn was faster."""
        part.history.append(Turned(adapter, context, turn.result.token_ids))

    def turn(self, part):
        self.note(part, *self.start(part))

    def leave(self, part):
        """The reader of a turn goes away after some tokens."""
        started = self.start(part)
        tokens = iter(started[-1])
        for _ in range(self.rng.randrange(3)):
            next(tokens, None)
        tokens.close()
        self.note(part, *started)

    def close_at_once(self, part):
        started = self.start(part)
        self.close(part)
        self.note(part, *started)

    def crop(self, part):
        length = self.rng.randrange(len(part.session.trajectory) + 1)
        part.session.crop(length)
        part.history.append(Cropped(length))

    def fork(self, part):
        if len(self.parts) < MOST_SESSIONS:
            self.parts.append(Part(part.session.fork(), part.preamble, list(part.history)))

    def settle(self, part):
        part.session.settle()


def disturb(running, over, seed):
    """Cancel turns, whichever and whenever, until it is over."""
    rng = random.Random(seed)
    while not over.wait(0.003):
        for turn in running[-THREADS:]:
            if rng.random() < 0.03:
                turn.cancel()


def says(engine, part):
    """What the session would have said, turn by turn, if only its own successful operations had been."""
    with engine.session(part.preamble) as session:
        for done in part.history:
            match done:
                case Cropped(length):
                    session.crop(length)
                case Turned(adapter, context, sampled):
                    turn = session.turn(adapter, context, Sampling(max_new_tokens=len(sampled)))
                    yield turn.result.token_ids


@pytest.mark.parametrize("scheme", [*SCHEMES, *(pytest.param(each, marks=pytest.mark.slow) for each in MORE)])
def test_no_disturbance_changes_a_token_of_another_session(open_engine, scheme):
    engine = open_engine(
        scheme, kv_budget_tokens=500, room_timeout_s=0.05, max_preambles=2, max_step_tokens=24, chunk_tokens=5
    )
    running, over = [], threading.Event()
    with ThreadPoolExecutor(THREADS + 1) as pool:
        disturber = pool.submit(disturb, running, over, 99)
        players = [pool.submit(Player(engine, running, seed).play) for seed in range(THREADS)]
        try:
            parts = [part for player in players for part in player.result(timeout=200)]
        finally:
            over.set()
        disturber.result(timeout=100)
    engine.check_integrity()
    assert engine.stats().sessions == 0
    assert engine.stats().peak_bytes <= engine._store.budget_bytes
    quiet = open_engine(scheme, max_preambles=0)
    compared = 0
    for part in parts:
        found = [done.sampled for done in part.history if isinstance(done, Turned)]
        assert list(says(quiet, part)) == found
        compared += len(found)
    assert compared > THREADS * OPERATIONS // 6
