"""Runs the load, watches it, replays what it did one after another, and says what is not as it should be."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from agentrt import Runtime
from benchmarks.soak.load import Worker
from benchmarks.soak.replays import Comparison, replay_episode, replay_session
from benchmarks.soak.usage import Usage, settles, usage

MEMORY_SLACK = 0.10
"""Growth of resident memory between the first third and the end that still counts as flat; allocators keep pages."""


@dataclass
class Report:
    """Counts, and `faults`: everything that went wrong, in words."""

    seconds: float = 0.0
    episodes: int = 0
    cancelled: int = 0
    timeouts: int = 0
    sessions: int = 0
    compared: Comparison = field(default_factory=Comparison)
    held_bytes: int = 0
    """Of the caches before the load: the shared preamble stays for the next session."""
    before: Usage | None = None
    third: Usage | None = None
    after: Usage | None = None
    faults: list[str] = field(default_factory=list)


def soak(
    runtime: Runtime,
    questions: Sequence[str],
    *,
    seconds: float,
    workers: int = 4,
    seed: int = 0,
    replays: int = 200,
    stuck_s: float = 120.0,
    settle_s: float = 10.0,
    say: Callable[[str], None] = lambda text: None,
) -> Report:
    """Load `runtime` for `seconds`; at most `replays` episodes and as many sessions are then run again, alone."""
    report = Report(seconds=seconds)
    crew = [Worker(runtime, tuple(questions), seed * 1000 + n) for n in range(workers)]
    crew[0].work(time.monotonic())  # no work, but the runtime's engine is there
    runtime.run(questions[0])
    report.before, report.held_bytes = usage(), runtime.engine.stats().held_bytes
    begin = time.monotonic()
    threads = [threading.Thread(target=worker.work, args=(begin + seconds,)) for worker in crew]
    for thread in threads:
        thread.start()
    _watch(runtime, crew, threads, begin, report, stuck_s, say)
    _books(runtime, report, settle_s)
    report.episodes = sum(len(worker.episodes) for worker in crew)
    report.cancelled = sum(not played.whole for worker in crew for played in worker.episodes)
    report.cancelled += sum(worker.cancelled_turns for worker in crew)
    report.timeouts = sum(sum(played.failed) for worker in crew for played in worker.episodes)
    report.sessions = sum(len(worker.sessions) for worker in crew)
    for worker in crew:
        for played in worker.episodes[: replays // workers]:
            replay_episode(runtime, played, report.compared)
        for turns in worker.sessions[: replays // workers]:
            replay_session(runtime.engine, turns, report.compared)
        say(f"replayed: {report.compared}")
    report.faults += report.compared.faults
    return report


def _watch(
    runtime: Runtime,
    crew: Sequence[Worker],
    threads: Sequence[threading.Thread],
    begin: float,
    report: Report,
    stuck_s: float,
    say: Callable[[str], None],
) -> None:
    told = begin
    while any(thread.is_alive() for thread in threads):
        time.sleep(0.05)
        now = time.monotonic()
        if report.third is None and now > begin + report.seconds / 3:
            report.third = usage()
        if now > told + 60:
            told = now
            say(f"{now - begin:.0f} s: {sum(len(w.episodes) for w in crew)} episodes, {runtime.health()}")
        stuck = [w.busy_since for w in crew if w.busy_since and now - w.busy_since > stuck_s]
        if stuck:
            report.faults.append(f"a piece of work has not ended in {stuck_s} s: {runtime.health()}")
            return
    report.faults += [f"a worker ended with {w.error!r}" for w in crew if w.error is not None]


def _books(runtime: Runtime, report: Report, settle_s: float) -> None:
    """Slots, sessions, threads, file handles and memory, once nothing runs."""
    engine, before = runtime.engine, report.before
    assert before is not None
    if not settles(lambda: engine.stats().sessions == 0 and engine.stats().held_bytes <= report.held_bytes, settle_s):
        report.faults.append(f"the engine still holds {engine.stats()}")
    engine.check_integrity()
    if runtime.health().runs:
        report.faults.append(f"{runtime.health().runs} runs are still in hand")
    if not settles(lambda: threading.active_count() <= before.threads, settle_s):
        names = sorted(thread.name for thread in threading.enumerate())
        report.faults.append(f"{len(names)} threads, there were {before.threads}: {names}")
    report.after = usage()
    if report.after.files > before.files:
        report.faults.append(f"{report.after.files} open files, there were {before.files}")
    third = report.third or before
    if report.after.resident_bytes > third.resident_bytes * (1 + MEMORY_SLACK):
        grown = (report.after.resident_bytes - third.resident_bytes) / 2**20
        report.faults.append(f"resident memory has grown by {grown:.0f} MiB since the first third")
