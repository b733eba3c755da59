"""What one run may be given besides its question, spelled once for run, arun, stream and astream."""

import threading
from collections.abc import Callable, Mapping
from typing import TypedDict

from agentrt.runtime.result import EpisodeResult
from agentrt_tools import Json

Scorer = Callable[[EpisodeResult], Mapping[str, Json]]
"""Compares a result with what is known of the question, e.g. its gold answer."""


class CancelToken:
    """Ends runs from outside. One token may be given to any number of runs, before or while they run."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cancelled = False
        self._callbacks: list[Callable[[], None]] = []

    @property
    def cancelled(self) -> bool:
        return self._cancelled

    def cancel(self) -> None:
        """End every run that has this token within one token, one prefill chunk or one poll of a tool; for good.

        May be called from any thread, any number of times.
        """
        with self._lock:
            self._cancelled = True
            callbacks = list(self._callbacks)
        for callback in callbacks:
            callback()

    def attach(self, callback: Callable[[], None]) -> None:
        """Have `callback` called at `cancel`, at once if that has been."""
        with self._lock:
            self._callbacks.append(callback)
            cancelled = self._cancelled
        if cancelled:
            callback()

    def detach(self, callback: Callable[[], None]) -> None:
        with self._lock:
            self._callbacks.remove(callback)


class ResumeOptions(TypedDict, total=False):
    """run_id: instead of a new one; it names the run folder. A run that goes on in its own folder keeps its id.
    score: fills the result's score where the gold answer is known.
    cancel: a token that ends the run as "cancelled".
    """

    run_id: str | None
    score: Scorer | None
    cancel: CancelToken | None


class RunOptions(ResumeOptions, total=False):
    """seed: instead of the runtime's.
    adapters: role -> adapter, for this run only: a name among the engine's adapters, or "" for adapters off.
    note: kept in the run's folder, for whoever resumes or reads it.
    """

    seed: int | None
    adapters: Mapping[str, str] | None
    note: Mapping[str, Json] | None
