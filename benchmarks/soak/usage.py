"""What a process holds."""

import ctypes
import gc
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Usage:
    threads: int
    files: int
    resident_bytes: int


def usage() -> Usage:
    """Memory after the allocator has given back what it can: each thread's arena keeps pages of its own."""
    gc.collect()
    libc = ctypes.CDLL(None)
    if hasattr(libc, "malloc_trim"):  # glibc
        libc.malloc_trim(0)
    with open("/proc/self/statm", encoding="ascii") as file:
        pages = int(file.read().split()[1])
    return Usage(threading.active_count(), len(os.listdir("/proc/self/fd")), pages * os.sysconf("SC_PAGE_SIZE"))


def settles(condition: Callable[[], bool], timeout_s: float) -> bool:
    """Whether `condition` becomes true: threads of tools that were left behind still have to wake up and end."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
