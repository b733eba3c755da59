"""Threads and locks end at a fork: the child has the memory, and nobody who works on it."""

import os
import threading
from typing import Any

from agentrt.errors import ForkedError


class Process:
    """The process in which something was made."""

    def __init__(self) -> None:
        self._id = os.getpid()

    @property
    def is_current(self) -> bool:
        return os.getpid() == self._id

    def check(self) -> None:
        """Raises ForkedError in any other process."""
        if not self.is_current:
            raise ForkedError(
                "this process was forked from the one that loaded the engine, whose worker thread did not come along; "
                "load an engine in each process, after the fork (or start processes with the method 'spawn')"
            )


class ProcessCondition(threading.Condition):
    """A condition that refuses to be entered after a fork, where its lock may be held by a thread that is gone."""

    def __init__(self) -> None:
        super().__init__()
        self.process = Process()

    def __enter__(self) -> Any:
        self.process.check()
        return super().__enter__()
