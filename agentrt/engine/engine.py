"""The engine: the queue, the worker thread and the steps. Policies live in schemes, packing in the scheduler."""

import atexit
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch

from agentrt.cache.prefix import Identity
from agentrt.cache.store import CacheStore
from agentrt.engine.admission import Admission
from agentrt.engine.config import EngineConfig
from agentrt.engine.costs import choose_ride_rows
from agentrt.engine.failure import step_failure
from agentrt.engine.health import EngineHealth, EngineStatus, check_queue, drained, health_of
from agentrt.engine.scheduler import Job, Scheduler
from agentrt.engine.session import Session
from agentrt.engine.stats import EngineStats
from agentrt.engine.turn import Turn
from agentrt.engine.work import SessionWork, TurnWork, checked_ids
from agentrt.errors import EngineClosedError, EngineError, UsageError
from agentrt.model.adapters import AdapterSet
from agentrt.model.backbone import Backbone
from agentrt.model.sampling import Sampling
from agentrt.model.tokenizer import Tokenizer
from agentrt.process import ProcessCondition
from agentrt.schemes import Scheme
from agentrt.schemes.make import make_scheme
from agentrt.step import Step
from agentrt.trajectory import NEUTRAL, Trajectory
from agentrt_kernels.dispatch import Backend


class Engine:
    """One backbone, one adapter set, one scheme, any number of sessions; a context manager.

    A worker thread runs steps; every method may be called from any thread. `close` is idempotent.
    """

    def __init__(
        self,
        backbone: Backbone,
        adapters: AdapterSet,
        scheme: Scheme,
        *,
        tokenizer: Tokenizer | None = None,
        config: EngineConfig | None = None,
    ) -> None:
        self.config = config or EngineConfig()
        backbone.compute.process.check()
        self.backbone = backbone
        self.adapters = adapters
        self.scheme = scheme = scheme.fitted(backbone.content_hash, adapters.hashes)
        self._tokenizer = tokenizer or backbone.tokenizer
        self._layout = backbone.layout(adapters)
        scheme.allow(self._layout)
        if scheme.maps_file is not None:
            self.adapters = backbone.load_maps(scheme.maps_file, adapters, scheme.maps_top)
        planes = scheme.planes(self._layout)
        self._store = CacheStore(
            planes,
            device=backbone.device,
            budget_bytes=self.config.budget_bytes(planes),
            segment_slots=self.config.segment_slots,
            poison=self.config.poison,
            identity=Identity(backbone.content_hash, adapters.hashes, scheme.identity),
            max_preambles=self.config.max_preambles,
        )
        self._graphs = None if self.config.cuda_graphs == "off" else backbone.graphs()
        ride_rows = choose_ride_rows(scheme, self.config, backbone, self.adapters)
        self._scheduler = Scheduler(self.config.max_step_tokens, self.config.chunk_tokens, ride_rows)
        self._admission = Admission(self._store.budget_bytes, self.config.room_timeout_s)
        self._sessions: list[SessionWork] = []
        self._changed = ProcessCondition()
        self._unseen = True  # something has changed since turns were last admitted
        self._closed = False
        self._status: EngineStatus = "ok"
        self._death: str | None = None
        self._stepping: float | None = None
        self._stats = EngineStats()
        self._worker = threading.Thread(target=self._work, name="agentrt-engine", daemon=True)
        self._worker.start()
        atexit.register(self.close)  # a worker inside a forward must not outlive the interpreter

    @classmethod
    def load(
        cls,
        backbone: str | Backbone = "smollm2-135m",
        adapters: Mapping[str, str | Path] | None = None,
        scheme: str | Scheme = "pre_lr_shared",
        *,
        scheme_options: Mapping[str, Any] | None = None,
        dtype: Any = "auto",
        device: str = "auto",
        offline: bool = False,
        backend: Backend = "auto",
        config: EngineConfig | None = None,
    ) -> Self:
        """Load a backbone (alias, hub id, folder or GGUF file) and adapters (peft folders by role name).

        `backend`: see `agentrt_kernels.dispatch`.
        Raises BackboneError, AdapterError or SchemeError, naming the value and the fix.
        """
        chosen = make_scheme(scheme, scheme_options) if isinstance(scheme, str) else scheme
        if isinstance(backbone, str):
            backbone = Backbone.load(backbone, dtype=dtype, device=device, offline=offline, backend=backend)
        adapter_set = backbone.load_adapters(adapters or {})
        return cls(backbone, adapter_set, chosen, config=config)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def tokenizer(self) -> Tokenizer:
        """The backbone's tokenizer. Raises EngineError for an engine built from token ids only."""
        if self._tokenizer is None:
            raise EngineError("this engine was built without a tokenizer; pass one, or use Engine.load")
        return self._tokenizer

    @property
    def scheme_name(self) -> str:
        return self.scheme.name

    @property
    def adapter_names(self) -> tuple[str, ...]:
        return self.adapters.names

    @property
    def weights(self) -> dict[str, str]:
        """A hash of each adapter's weights by name, and of the backbone's as "base"."""
        return {**self.adapters.hashes, "base": self.backbone.content_hash}

    @property
    def max_context(self) -> int:
        """Most tokens a trajectory may have."""
        limit = self.config.max_context
        return self.backbone.max_positions if limit is None else limit

    def session(self, preamble: Sequence[int] | None = None) -> Session:
        """Open a session. `preamble` is a prefix that the scheme reads by a fixed path, once for all such sessions."""
        trajectory = Trajectory()
        trajectory.append(checked_ids(() if preamble is None else preamble, self.backbone), "system", "preamble")
        trajectory.preamble = len(trajectory) if self.scheme.preamble == "shared" else 0
        with self._changed:
            self._check_taking()
            sharing = self.scheme.open(self._layout, self._store, trajectory)
            sharing.may_ride = self._scheduler.ride_rows > 0
            work = SessionWork(trajectory, sharing)
            self._sessions.append(work)
        return Session(self, work)

    def stats(self) -> EngineStats:
        with self._changed:
            return self._stats.at(self._store, len(self._sessions), self._graphs.use if self._graphs else None)

    def health(self) -> EngineHealth:
        """Whether this engine takes work, and what it is busy with; raises nothing, not even after a fork."""
        if not self._changed.process.is_current:
            return EngineHealth("forked")
        with self._changed:
            return health_of(self._status, self._death, self._sessions, self._stepping, self._store.held_bytes)

    def drain(self, timeout_s: float | None = None) -> bool:
        """Refuse new sessions and turns from now on, and wait until nothing runs; whether that was in time."""
        self._check_thread()
        with self._changed:
            self._status = "draining" if self._status == "ok" else self._status
            return self._changed.wait_for(lambda: self._closed or drained(self._sessions), timeout_s)

    def reset_peak(self) -> None:
        """Start a new measurement of peak bytes."""
        with self._changed:
            self._store.reset_peak()

    def check_integrity(self) -> None:
        """Assert the books of every plane; for tests."""
        with self._changed:
            self._store.check_integrity()

    def close(self) -> None:
        """Cancel what runs, free every slot, stop the worker. Idempotent; does nothing in a forked process."""
        self._check_thread()
        atexit.unregister(self.close)
        if not self._changed.process.is_current:
            return
        with self._changed:
            self._closed = True
            self._status = "failed" if self._death else "closed"
            self._changed.notify_all()
        self._worker.join()
        with self._changed:
            for work in list(self._sessions):
                self._retire(work)
            self._store.clear()
            self._graphs = None
        self.backbone.forget()

    # Calls of Session, each under the lock.

    def append(self, work: SessionWork, token_ids: Sequence[int], author: str, kind: str) -> None:
        with self._changed:
            self._check_idle(work)
            work.trajectory.append(checked_ids(token_ids, self.backbone), author, kind)

    def submit(
        self, work: SessionWork, adapter: str, new_token_ids: Sequence[int], sampling: Sampling, kind: str
    ) -> Turn:
        with self._changed:
            self._check_taking()
            self._check_idle(work)
            check_queue(self._sessions, self.config.max_waiting)
            if adapter != NEUTRAL and adapter not in self.adapters.names:
                raise UsageError(f"unknown adapter {adapter!r}; this engine has: {', '.join(self.adapters.names)}")
            new_token_ids = checked_ids(new_token_ids, self.backbone)
            before = work.trajectory.copy()
            length = len(before) + len(new_token_ids)
            if length == 0:
                raise UsageError("the trajectory is empty: append context or pass new_token_ids")
            if length + sampling.max_new_tokens > self.max_context:
                raise UsageError(
                    f"context: {length} tokens and {sampling.max_new_tokens} new ones exceed the limit of "
                    f"{self.max_context}; shorten the context, lower max_new_tokens, or raise max_context"
                )
            work.trajectory.append(new_token_ids, "user", "context")
            turn = Turn(lambda: self._cancel(record), self._check_thread)
            record = TurnWork(turn, work, adapter, sampling, kind, before)
            work.turn, work.urgent, work.failure = record, bool(work.pending), None
            self._tell()
        return turn

    def crop(self, work: SessionWork, length: int) -> None:
        with self._changed:
            self._flush(work)
            if not 0 <= length <= len(work.trajectory):
                raise UsageError(f"crop: length {length} is outside [0, {len(work.trajectory)}]")
            work.sharing.crop(length)
            work.trajectory.crop(length)
            self._tell()  # others may wait for what it held

    def fork(self, work: SessionWork) -> SessionWork:
        with self._changed:
            self._flush(work)
            trajectory = work.trajectory.copy()
            twin = SessionWork(trajectory, work.sharing.fork(trajectory))
            self._sessions.append(twin)
            return twin

    def settle(self, work: SessionWork, *, catch_up: bool) -> None:
        with self._changed:
            self._flush(work)
            if catch_up:
                work.pending.extend(work.sharing.catch_up())
                self._flush(work)

    def kv_bytes(self, work: SessionWork) -> int:
        with self._changed:
            self._check_open()
            return work.sharing.kv_bytes

    def close_session(self, work: SessionWork) -> None:
        self._check_thread()
        with self._changed:
            work.closing = True
            if work.turn is not None:
                work.turn.cancelled = True
                self._tell()
                self._changed.wait_for(lambda: work.turn is None or self._closed)
            if work in self._sessions:
                self._retire(work)

    # The worker.

    def _work(self) -> None:
        try:
            while (jobs := self._next_step()) is not None:
                self.backbone.compute.call(self._run, jobs)
        except BaseException as error:  # the worker itself is at fault: nobody may wait for it any longer
            with self._changed:
                self._closed, self._status, self._death = True, "failed", repr(error)
                for work in list(self._sessions):
                    self._retire(work, EngineError(f"the engine's worker died: {error!r}"))
            raise

    def _run(self, jobs: list[Job]) -> None:
        """One step and what follows from it, on the backbone's compute thread."""
        self._stepping = time.perf_counter()
        try:
            step = Step(tuple(job.run for job in jobs))
            logits = self.backbone.run(step, self._store.planes, self.adapters, self._graphs)
        except Exception as error:
            self._fail(jobs, error)
        else:
            self._settle(jobs, logits)
        finally:
            self._stepping = None

    def _next_step(self) -> list[Job] | None:
        """Wait for work, admit turns, and pack it; None when the engine is closed."""
        with self._changed:
            while not self._closed:
                if self._unseen:
                    self._unseen = False
                    self._stats = self._stats.waited(self._admission.admit(self._sessions))
                    self._changed.notify_all()
                if jobs := self._scheduler.pack(self._sessions):
                    return jobs
                self._changed.wait(self._admission.patience_s)
                self._unseen = True
            return None

    def _settle(self, jobs: list[Job], logits: list[torch.Tensor | None]) -> None:
        with self._changed:
            self._stats = self._stats.after(jobs)
            live = [(job, rows) for job, rows in zip(jobs, logits, strict=True) if not job.session.closed]
            for job, _ in live:
                self._scheduler.done(job)
                job.session.rest(job.turn)
                if job.turn is not None:
                    job.turn.count(job.run)
            for job, rows in live:
                if job.turn is not None and rows is not None and not job.turn.cancelled:
                    try:
                        job.turn.settle(rows[-1])
                    except BaseException as error:  # a stop or constraint callable of the caller's
                        job.turn.undo(error)
            if not all(job.decodes for job in jobs):
                self._tell()

    def _fail(self, jobs: list[Job], error: Exception) -> None:
        traceback.clear_frames(error.__traceback__)  # let go of the step's tensors
        with self._changed:
            for job in jobs:
                wrapped = step_failure(error)
                if job.turn is None:
                    job.session.failure, job.session.urgent = wrapped, False
                elif job.session.turn is job.turn:
                    job.turn.undo(wrapped)
            self._tell()

    def _cancel(self, record: TurnWork) -> None:
        with self._changed:
            record.cancelled = True
            self._tell()

    # Helpers, called under the lock.

    def _tell(self) -> None:
        """Something has changed that the admission of turns, or a caller who waits, looks at."""
        self._unseen = True
        self._changed.notify_all()

    def _flush(self, work: SessionWork) -> None:
        self._check_thread()
        self._check_idle(work)
        work.urgent, work.failure = bool(work.pending), None
        self._tell()
        self._changed.wait_for(lambda: not work.pending or work.failure or work.closed or self._closed)
        if work.failure is not None:
            raise work.failure
        self._check_idle(work)

    def _retire(self, work: SessionWork, reason: EngineError | None = None) -> None:
        if work.turn is not None:
            work.turn.undo(reason or EngineClosedError("the engine was closed"))
        work.pending.clear()
        work.closed = True
        work.sharing.close()
        self._sessions.remove(work)
        self._tell()

    def _check_open(self) -> None:
        if self._closed:
            raise EngineClosedError("the engine is closed; open a new one")

    def _check_taking(self) -> None:
        self._check_open()
        if self._status == "draining":
            raise EngineClosedError("the engine is draining: it finishes what it has and takes nothing new")

    def _check_idle(self, work: SessionWork) -> None:
        self._check_open()
        work.check_idle()

    def _check_thread(self) -> None:
        if self.backbone.compute.is_current:
            raise UsageError("a stop or constraint callable may not wait for or close the engine that calls it")
