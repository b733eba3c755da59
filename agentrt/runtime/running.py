"""The runs a runtime has in hand: whether new ones may begin, and how to end or await those that did."""

import threading
import time
from typing import Protocol

from agentrt.errors import EngineClosedError


class Running(Protocol):
    """A run that was begun."""

    def launch(self) -> None: ...
    def cancel(self) -> None: ...
    def join(self, timeout_s: float | None = None) -> bool: ...


class Runs:
    """Safe from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[Running] = set()
        self.state = "ok"
        self._refusal = ""

    def __len__(self) -> int:
        return len(self._running)

    @property
    def refusal(self) -> str:
        """Why no run may begin, or empty."""
        return self._refusal

    def begin(self, run: Running) -> None:
        """Launch a run. Raises EngineClosedError where none may begin any more."""
        with self._lock:
            if self._refusal:
                raise EngineClosedError(self._refusal)
            self._running.add(run)
            run.launch()

    def end(self, run: Running) -> None:
        with self._lock:
            self._running.discard(run)

    def refuse(self, state: str, why: str) -> None:
        """Let no run begin from now on; `state` names that in one word."""
        with self._lock:
            self.state, self._refusal = state, why

    def cancel(self) -> None:
        for run in self._now():
            run.cancel()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for all that run to end; whether they did. A run that calls this is not waited for."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        ended = [run.join(None if deadline is None else max(0.0, deadline - time.monotonic())) for run in self._now()]
        return all(ended)

    def _now(self) -> list[Running]:
        with self._lock:
            return list(self._running)
