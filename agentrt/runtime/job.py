"""One episode at work: a thread drives the graph, its events wait in a queue for whoever reads them."""

import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import cast

from langchain_core.runnables import RunnableConfig

from agentrt.runtime.events import Event, RunStarted
from agentrt.runtime.graph import Graph
from agentrt.runtime.result import EpisodeResult, result_of
from agentrt.runtime.runlog import RunLog
from agentrt.runtime.state import EpisodeState, RunContext, SpanRecord, initial_state
from agentrt_tools import Json

Scorer = Callable[[EpisodeResult], Mapping[str, Json]]
"""Compares a result with what is known of the question, e.g. its gold answer."""


class Job:
    """Runs `question` through `graph` once. `open_log` and `open_context` open the run folder and the session; they
    are called in the job's thread, so that a job that never starts holds nothing."""

    def __init__(
        self,
        graph: Graph,
        open_context: Callable[[Callable[[Event], None]], RunContext],
        started: RunStarted,
        *,
        open_log: Callable[[], RunLog] | None = None,
        score: Scorer | None = None,
    ) -> None:
        self._graph, self._open_context, self._open_log, self._score = graph, open_context, open_log, score
        self._started = started
        self._log: RunLog | None = None
        self._events: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        self._cancelled = threading.Event()
        self._context: RunContext | None = None
        self._state: EpisodeState = initial_state(started.question, [])
        self._error: BaseException | None = None
        self.result: EpisodeResult | None = None

    def events(self) -> Iterator[Event]:
        """Start, and yield events as they happen; closing the iterator cancels the run and waits for its end.

        Raises what the run raised, after its last event.
        """
        worker = threading.Thread(target=self._work, name=f"agentrt-run {self._started.run_id}", daemon=True)
        worker.start()
        try:
            while (event := self._events.get()) is not None:
                yield event
        finally:
            self._cancel()
            worker.join()
        if self._error is not None:
            raise self._error

    def _cancel(self) -> None:
        self._cancelled.set()
        if self._context is not None:
            self._context.cancel()

    def _emit(self, event: Event) -> None:
        if self._log is not None:
            self._log.event(event)
        self._events.put(event)

    def _work(self) -> None:
        begin = time.monotonic()
        try:
            self._log = self._open_log() if self._open_log is not None else None
            self._emit(self._started)
            self._drive()
        except BaseException as error:  # raised again in the reader's thread
            self._error = error
        try:
            self._finish(time.monotonic() - begin)
        except BaseException as error:
            self._error = self._error or error
        finally:
            self._events.put(None)

    def _drive(self) -> None:
        context = self._open_context(self._emit)
        try:
            self._context = context
            if self._cancelled.is_set():
                context.cancel()
            self._state = opening(context, self._started.question)
            # LangGraph's own limit must never be the first: every node adds a token to a bounded context.
            limit: RunnableConfig = {"recursion_limit": 2 * context.max_context + 100}
            for state in self._graph.stream(self._state, limit, context=context, stream_mode="values"):
                self._state = cast(EpisodeState, state)  # LangGraph types it as Any
        finally:
            context.session.close()

    def _finish(self, total_s: float) -> None:
        started, error = self._started, self._error
        result = result_of(
            self._state,
            run_id=started.run_id,
            team=started.team,
            scheme=started.scheme,
            seed=started.seed,
            total_s=total_s,
            error=None if error is None else f"{type(error).__name__}: {error}",
        )
        try:
            if self._score is not None and error is None:
                result = result.model_copy(update={"score": dict(self._score(result))})
        finally:
            self.result = result
            self._emit(result.event())
            if self._log is not None:
                self._log.result(result)
                self._log.close()


def opening(context: RunContext, question: str) -> EpisodeState:
    """The state before the first node; the question is appended behind the preamble that opened the session."""
    renderer, preamble = context.renderer, context.renderer.preamble(context.team.preamble)
    spans = []
    if preamble:
        text = renderer.tokenizer.decode(preamble)
        spans.append(SpanRecord(author="system", kind="preamble", path=None, text=text, token_ids=preamble))
    spans += context.append(renderer.question(question), author="user", kind="question")
    return initial_state(question, spans)
