"""Keeps a run folder to one writer at a time."""

from pathlib import Path
from typing import Final

from filelock import FileLock, Timeout

from agentrt.errors import RunBusyError

LOCK_FILE: Final = "run.lock"


def lock_run(folder: Path) -> FileLock:
    """Take the lock of a run folder, which is made if it is not there; `release` gives it back, from any thread.

    The operating system holds the lock, so that it ends with its process, however that dies; its file stays.
    Raises RunBusyError where another process, or another run of this one, has it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / LOCK_FILE, thread_local=False)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        raise RunBusyError(
            f"{folder}: somebody else is working on this run; wait until it ends, or stop it, and try again"
        ) from None
    return lock
