"""Trains several roles at once, a process each, in the order that their contexts ask for."""

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

from agentrt.errors import AdapterError, AgentrtError, BackboneError, DataError, SchemeError, UsageError
from agentrt.training.role import RoleJob, run_job
from agentrt.training.trainer import StepFacts, TrainResult

Report = Callable[[str, StepFacts], None]
"""(role, a step of it)."""

_ERRORS: Final = {
    each.__name__: each for each in (UsageError, DataError, SchemeError, AdapterError, BackboneError, AgentrtError)
}
_GRACE_S: Final = 10.0


@dataclass(frozen=True)
class Outcome:
    """How the training of a role ended: with a result, or an error."""

    job: RoleJob
    result: TrainResult | None = None
    error: Exception | None = None


def processors() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def share_threads(jobs: Sequence[RoleJob], at_once: int, cores: int) -> list[int]:
    """Threads for each job: those that run side by side share the cores; one that others wait for has them alone."""
    names = {job.role for job in jobs}
    waits = [job.other in names for job in jobs]
    return [max(1, cores // min(at_once, waits.count(each))) for each in waits]


def train_all(
    jobs: Sequence[RoleJob],
    at_once: int,
    *,
    report: Report = lambda role, facts: None,
    ended: Callable[[Outcome], None] = lambda outcome: None,
) -> list[Outcome]:
    """Run every job, at most `at_once` at a time; one whose `other` is among them waits for that.

    With `at_once` 1 they run in this process, else each in one of its own. A job that fails does not stop the others,
    but those that wait for it. `ended` is told of each as it ends. An interrupt ends all; what they had saved stays.
    """
    outcomes: dict[str, Outcome] = {}
    waiting, names = list(jobs), {job.role for job in jobs}

    def settle(outcome: Outcome) -> None:
        outcomes[outcome.job.role] = outcome
        ended(outcome)

    pool: _Here | _Processes = _Here(report) if at_once == 1 else _Processes(report)
    with pool:
        while waiting or pool.running:
            for job in list(waiting):
                needed = outcomes.get(job.other) if job.other is not None else None
                if needed is not None and needed.error is not None:
                    waiting.remove(job)
                    settle(Outcome(job, error=UsageError(f"not trained: it reads what {job.other} leaves behind")))
                elif (needed is not None or job.other not in names) and len(pool.running) < at_once:
                    waiting.remove(job)
                    pool.start(job)
            if pool.running:
                settle(pool.wait())
    return [outcomes[job.role] for job in jobs]


class _Here:
    """Runs a job when it is waited for."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self.running: list[RoleJob] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        pass

    def start(self, job: RoleJob) -> None:
        self.running.append(job)

    def wait(self) -> Outcome:
        job = self.running.pop(0)
        try:
            return Outcome(job, run_job(job, lambda facts: self._report(job.role, facts)))
        except AgentrtError as error:
            return Outcome(job, error=error)


class _Processes:
    """A worker process for each job, and a thread that listens to it."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._heard: queue.SimpleQueue[tuple[RoleJob, dict[str, Any]]] = queue.SimpleQueue()
        self.running: dict[str, subprocess.Popen[str]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self.running.values():
            process.terminate()
        for process in self.running.values():
            try:
                process.wait(_GRACE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def start(self, job: RoleJob) -> None:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        if job.threads is not None:
            environment["OMP_NUM_THREADS"] = str(job.threads)
        process = subprocess.Popen(
            [sys.executable, "-m", "agentrt.training.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        self.running[job.role] = process
        threading.Thread(target=self._listen, args=(job, process), daemon=True).start()

    def wait(self) -> Outcome:
        while True:
            job, message = self._heard.get()
            if "step" in message:
                self._report(job.role, StepFacts(**message["step"]))
                continue
            del self.running[job.role]
            if "result" in message:
                return Outcome(job, TrainResult.from_json(message["result"]))
            kind, text = message["error"]["kind"], message["error"]["message"]
            return Outcome(job, error=_ERRORS[kind](text) if kind in _ERRORS else RuntimeError(text))

    def _listen(self, job: RoleJob, process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        last: dict[str, Any] = {}
        with suppress(OSError, ValueError), process:  # of a process that dies: half a line, or nobody who reads
            process.stdin.write(job.to_json())
            process.stdin.close()
            for line in process.stdout:
                message = json.loads(line)
                if "step" in message:
                    self._heard.put((job, message))
                else:
                    last = message
        died = f"its process ended with code {process.returncode}; --resume goes on from its checkpoint"
        self._heard.put((job, last or {"error": {"kind": AgentrtError.__name__, "message": died}}))
