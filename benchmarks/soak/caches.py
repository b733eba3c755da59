"""The caches of an engine at rest: whether a slot is still held, and how much of the process's memory is theirs.

Looks inside the engine, whose own counters are what is checked here.
"""

import ctypes
import os

from agentrt.engine import Engine


def held_without_sessions(engine: Engine) -> int:
    """Bytes of slots that are held though no session is open, once the preambles kept for later ones are dropped."""
    with engine._changed:
        engine._store.prefixes.clear()
        return engine._store.held_bytes


def resident_bytes(engine: Engine) -> int:
    """Of the planes' tensors on a CPU, what lies in memory: a page comes when a row in it is written, and stays."""
    with engine._changed:
        segments = [segment for plane in engine._store.planes.values() for segment in plane.segments]
        storages = [each.untyped_storage() for segment in segments for each in segment.values() if each.is_cpu]
        return sum(_resident(storage.data_ptr(), storage.nbytes()) for storage in storages)


def _resident(address: int, size: int) -> int:
    """Bytes of the whole pages in `[address, address + size)` that are in memory (mincore(2))."""
    page = os.sysconf("SC_PAGE_SIZE")
    first, stop = -(-address // page), (address + size) // page
    if first >= stop:
        return 0
    found = (ctypes.c_ubyte * (stop - first))()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mincore(ctypes.c_void_p(first * page), ctypes.c_size_t((stop - first) * page), found):
        raise OSError(ctypes.get_errno(), "mincore")
    return page * sum(state & 1 for state in bytes(found))
