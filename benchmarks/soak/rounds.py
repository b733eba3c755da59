"""One round of load, and what must be true when it is over and nothing runs any more."""

import threading
import time
from collections.abc import Sequence
from dataclasses import replace

from agentrt import Runtime
from benchmarks.soak.caches import held_without_sessions, resident_bytes
from benchmarks.soak.load import Worker
from benchmarks.soak.usage import Usage, settles, usage


class StuckError(Exception):
    """A piece of work that never ended. Its thread is still there."""


def play_round(crew: Sequence[Worker], seconds: float, stuck_s: float) -> list[str]:
    """Have all work for so long, and end what they began; returns what went wrong. Raises StuckError."""
    deadline = time.monotonic() + seconds
    threads = [threading.Thread(target=worker.work, args=(deadline,), daemon=True) for worker in crew]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        time.sleep(0.02)
        now = time.monotonic()
        oldest = min((since for worker in crew if (since := worker.busy_since)), default=now)
        if now - oldest > stuck_s:  # asks the engine nothing, whose lock may be held for good
            raise StuckError(f"a piece of work has not ended in {stuck_s:g} s")
    return [f"a worker ended with {worker.error!r}" for worker in crew if worker.error is not None]


def usage_at_rest(runtime: Runtime) -> Usage:
    """Memory without the caches' own pages: those come as slots are first written, and the KV budget bounds them."""
    found = usage()
    return replace(found, resident_bytes=found.resident_bytes - resident_bytes(runtime.engine))


def left_behind(runtime: Runtime, before: Usage, settle_s: float) -> list[str]:
    """Runs, sessions, slots, threads and open files that should be gone."""
    engine, faults = runtime.engine, []
    if not settles(lambda: engine.stats().sessions == 0 and not runtime.health().runs, settle_s):
        faults.append(f"{engine.stats().sessions} sessions and {runtime.health().runs} runs are still open")
    if held := held_without_sessions(engine):
        faults.append(f"{held:,} bytes of slots are still held")
    try:
        engine.check_integrity()
    except AssertionError as error:
        faults.append(f"the books of the slots do not add up: {error}")
    if not settles(lambda: threading.active_count() <= before.threads, settle_s):
        names = sorted(thread.name for thread in threading.enumerate())
        faults.append(f"{len(names)} threads, there were {before.threads}: {names}")
    if (files := usage().files) > before.files:
        faults.append(f"{files} open files, there were {before.files}")
    return faults
