"""One worker of the load: episodes that run, are cancelled in every way there is or refused, and bare sessions."""

import itertools
import random
import shutil
import threading
import time
from collections import Counter
from pathlib import Path

from agentrt import CacheFullError, CancelToken, QueueFullError, Runtime
from agentrt.runtime.events import Event, RunFinished, Token, ToolFinished
from benchmarks.soak.records import Happening, History, Played, Sample
from benchmarks.soak.sessions import BareSessions

CUT_SHORT = ("cancelled", "limit:time", "failed")
"""Ends that hang on the clock or on what else runs: a replay may go further."""

BACK_OFF_S = 0.1
"""A worker waits that long after its episode was refused, as an app would, instead of spinning."""


class Worker:
    """Plays until a deadline. `busy_since` tells a watchdog how long the present piece of work has taken.

    It keeps `replays` of its episodes and as many sessions. `folders`: where the runtime writes its runs, if it does;
    each is deleted when it is over.
    """

    def __init__(
        self, runtime: Runtime, questions: tuple[str, ...], seed: int, replays: int, folders: Path | None = None
    ) -> None:
        self.counts: Counter[Happening] = Counter()
        self.episodes: Sample[Played] = Sample(replays, seed)
        self.sessions: Sample[History] = Sample(replays, seed)
        self.busy_since = 0.0
        self.error: BaseException | None = None
        self._runtime, self._questions, self._folders = runtime, questions, folders
        self._rng = random.Random(seed)
        self._bare = BareSessions(runtime.engine, self._rng, self.counts)
        self._run_ids = (f"soak-{seed}-{number}" for number in itertools.count())

    def work(self, deadline: float) -> None:
        """`deadline` on the monotonic clock; what has begun by then is finished."""
        ways = (self._whole, self._whole, self._close_iterator, self._cancel_token, self._sessions, self._burst)
        self.error = None
        try:
            while time.monotonic() < deadline:
                self.busy_since = time.monotonic()
                self._rng.choice(ways)()
        except BaseException as error:  # told to whoever started the thread
            self.error = error
        finally:
            self.busy_since = 0.0

    def _whole(self) -> None:
        self._play(None, None)

    def _close_iterator(self) -> None:
        self._play(self._rng.randrange(60), None)

    def _cancel_token(self) -> None:
        token = CancelToken()
        timer = threading.Timer(self._rng.random() * 0.5, token.cancel)
        timer.start()
        self._play(None, token)
        timer.join()

    def _sessions(self) -> None:
        self._offer(self._bare.play())

    def _burst(self) -> None:
        self._offer(self._bare.burst())

    def _offer(self, histories: list[History]) -> None:
        for history in filter(None, histories):
            self.sessions.offer(history)

    def _play(self, close_after: int | None, token: CancelToken | None) -> None:
        question, seed, run_id = self._rng.choice(self._questions), self._rng.randrange(8), next(self._run_ids)
        heard = list[Event]()
        events = self._runtime.stream(question, seed=seed, cancel=token, run_id=run_id)
        try:
            for event in events:
                heard.append(event)
                if close_after is not None and len(sampled_in(heard)) > close_after:
                    self.counts["closed_iterators"] += 1
                    events.close()
                    break
        except QueueFullError:
            self.counts["refused_by_the_queue"] += 1
            time.sleep(BACK_OFF_S)
            if not sampled_in(heard):
                return  # nothing began
        except CacheFullError:
            self.counts["refused_for_room"] += 1
        finally:
            if self._folders is not None:
                shutil.rmtree(self._folders / run_id, ignore_errors=True)  # one refused at once has none
        self._note(question, seed, heard)

    def _note(self, question: str, seed: int, heard: list[Event]) -> None:
        ends = [event.status for event in heard if isinstance(event, RunFinished)]
        whole = bool(ends) and ends[0] not in CUT_SHORT
        calls = [event.failure for event in heard if isinstance(event, ToolFinished)]
        self.counts["episodes"] += 1
        self.counts["whole_episodes"] += whole
        self.counts["cancelled_episodes"] += ends == ["cancelled"]
        self.counts["tool_calls"] += len(calls)
        self.counts["tool_timeouts"] += calls.count("timeout")
        if sampled := sampled_in(heard):
            self.episodes.offer(Played(question, seed, sampled, whole, failures_in(heard)))


def sampled_in(heard: list[Event]) -> tuple[int, ...]:
    return tuple(event.token_id for event in heard if isinstance(event, Token))


def failures_in(heard: list[Event]) -> tuple[bool, ...]:
    """For each tool call whether it failed."""
    return tuple(event.failure is not None for event in heard if isinstance(event, ToolFinished))
