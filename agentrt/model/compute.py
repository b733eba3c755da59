"""The one thread that does a backbone's arithmetic."""

import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeVar

from agentrt.process import Process

P = ParamSpec("P")
T = TypeVar("T")


class ComputeThread:
    """Runs calls one after another on a thread of its own, and waits for each.

    Every thread that computes with torch on a CPU gets a team of OpenMP threads. As soon as the teams of a process
    together outnumber the processors, libgomp stops waiting actively between parallel regions, and each of the
    hundreds of small regions of a decode step pays for a wake-up. So a model is loaded, packed and run here only.
    """

    def __init__(self) -> None:
        self.process = Process()
        self._calls: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._thread = threading.Thread(target=_serve, args=(self._calls,), name="agentrt-compute", daemon=True)
        self._thread.start()
        weakref.finalize(self, self._calls.put, None)

    @property
    def is_current(self) -> bool:
        return threading.current_thread() is self._thread

    def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """`function(*args, **kwargs)` on the thread; raises what it raises."""
        if self.is_current:
            return function(*args, **kwargs)
        future: Future[T] = Future()
        self._calls.put((future, partial(function, *args, **kwargs)))
        return future.result()


def _serve(calls: "SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None]") -> None:
    """Knows only the queue, so that the thread ends with its owner."""
    while (item := calls.get()) is not None:
        future, function = item
        try:
            future.set_result(function())
        except BaseException as error:
            future.set_exception(error)
        del future, function, item  # hold nothing of a model while waiting
