"""One worker of the load: episodes that run, are cancelled in every way there is, and bare sessions beside them."""

import random
import threading
import time
from dataclasses import dataclass, field
from typing import NamedTuple

from agentrt import Runtime, Sampling, TurnCancelledError
from agentrt.runtime.events import RunFinished, Token, ToolFinished
from agentrt.runtime.options import CancelToken

CUT_SHORT = ("cancelled", "limit:time")
"""Ends that hang on the clock: a replay may go further."""


class Played(NamedTuple):
    """An episode: what came of it. `whole` is False where it was cut short: `sampled` is then a beginning."""

    question: str
    seed: int
    sampled: tuple[int, ...]
    whole: bool
    failed: tuple[bool, ...]
    """For each tool call, whether it failed: a tool that is late for once changes what follows."""


class Turned(NamedTuple):
    """A turn of a bare session that ran to its end."""

    adapter: str
    context: tuple[int, ...]
    sampled: tuple[int, ...]


@dataclass
class Worker:
    """Plays until the deadline. `busy_since` tells a watchdog how long the present piece of work has taken."""

    runtime: Runtime
    questions: tuple[str, ...]
    seed: int
    episodes: list[Played] = field(default_factory=list)
    sessions: list[list[Turned]] = field(default_factory=list)
    cancelled_turns: int = 0
    busy_since: float = 0.0
    error: BaseException | None = None

    def work(self, deadline: float) -> None:
        rng = random.Random(self.seed)
        ways = (self._whole, self._whole, self._closed_iterator, self._token, self._session)
        try:
            while time.monotonic() < deadline:
                self.busy_since = time.monotonic()
                rng.choice(ways)(rng)
        except BaseException as error:  # told to whoever started the thread
            self.error = error
        finally:
            self.busy_since = 0.0

    def _whole(self, rng: random.Random) -> None:
        self._play(rng, None, None)

    def _closed_iterator(self, rng: random.Random) -> None:
        self._play(rng, rng.randrange(60), None)

    def _token(self, rng: random.Random) -> None:
        token = CancelToken()
        timer = threading.Timer(rng.random() * 0.5, token.cancel)
        timer.start()
        self._play(rng, None, token)
        timer.join()

    def _play(self, rng: random.Random, close_after: int | None, token: CancelToken | None) -> None:
        question, seed = rng.choice(self.questions), rng.randrange(8)
        sampled: list[int] = []
        whole, failed = False, list[bool]()
        events = self.runtime.stream(question, seed=seed, cancel=token)
        for event in events:
            if isinstance(event, Token):
                sampled.append(event.token_id)
            if isinstance(event, RunFinished):
                whole = event.status not in CUT_SHORT
            if isinstance(event, ToolFinished):
                failed.append(event.failure is not None)
            if close_after is not None and len(sampled) > close_after:
                events.close()
                break
        self.episodes.append(Played(question, seed, tuple(sampled), whole, tuple(failed)))

    def _session(self, rng: random.Random) -> None:
        engine = self.runtime.engine
        turns: list[Turned] = []
        with engine.session() as session:
            for _ in range(rng.randrange(1, 6)):
                context = tuple(rng.randrange(engine.backbone.vocab_size) for _ in range(rng.randrange(1, 40)))
                adapter = rng.choice(engine.adapter_names)
                turn = session.turn(adapter, context, Sampling(max_new_tokens=rng.randrange(1, 24)))
                if rng.random() < 0.3:
                    turn.cancel()
                try:
                    turns.append(Turned(adapter, context, turn.result.token_ids))
                except TurnCancelledError:
                    self.cancelled_turns += 1
        self.sessions.append(turns)
