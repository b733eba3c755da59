"""One episode at work: a thread drives the graph, its events wait in a queue for whoever reads them."""

import asyncio
import queue
import threading
import time
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from contextlib import suppress
from typing import Literal, cast

from langchain_core.runnables import RunnableConfig

from agentrt.errors import TurnCancelledError
from agentrt.runtime.events import Event, RunResumed, RunStarted
from agentrt.runtime.graph import Graph
from agentrt.runtime.options import CancelToken, Scorer
from agentrt.runtime.result import EpisodeResult, result_of
from agentrt.runtime.runfolder import RunFolder
from agentrt.runtime.running import Runs
from agentrt.runtime.state import EpisodeState, RunContext, SpanRecord, initial_state


class Job:
    """Runs a question through `graph` once, from its start or from the last checkpoint in its folder.

    `open_folder` and `open_context` open the run folder and the session; they are called in the job's thread, so
    that a job that never starts holds nothing. `runs` takes it in while it runs, or refuses it.
    """

    def __init__(
        self,
        graph: Graph,
        open_context: Callable[[Callable[[Event], None]], RunContext],
        started: RunStarted | RunResumed,
        runs: Runs,
        *,
        open_folder: Callable[[], RunFolder] | None = None,
        score: Scorer | None = None,
        cancel: CancelToken | None = None,
    ) -> None:
        self._graph, self._open_context, self._score = graph, open_context, score
        self._open_folder = open_folder
        self._started, self._token, self._runs = started, cancel, runs
        self._folder: RunFolder | None = None
        self._worked_s = 0.0
        self._send: Callable[[Event | None], None] = lambda event: None
        self._worker = threading.Thread(target=self._work, name=f"agentrt-run {started.run_id}", daemon=True)
        self._cancelled = threading.Event()
        self._context: RunContext | None = None
        self._state: EpisodeState = initial_state(started.question, [])
        self._error: BaseException | None = None
        self._result: EpisodeResult | None = None

    def events(self) -> Generator[Event, None, None]:
        """Start, and yield events as they happen; closing the iterator cancels the run and waits for its end.

        Raises what the run raised, after its last event. To be iterated once, this or `aevents`.
        """
        arrived: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        self._start(arrived.put)
        try:
            while (event := arrived.get()) is not None:
                yield event
        finally:
            self.cancel()
            self._worker.join()
        self._raise()

    async def aevents(self) -> AsyncGenerator[Event, None]:
        """The same for asyncio: the loop stays free, and cancelling the task that reads cancels the run."""
        loop = asyncio.get_running_loop()
        arrived: asyncio.Queue[Event | None] = asyncio.Queue()

        def send(event: Event | None) -> None:
            with suppress(RuntimeError):  # the loop was closed: nobody reads on
                loop.call_soon_threadsafe(arrived.put_nowait, event)

        self._start(send)
        ended = False
        try:
            while not ended:
                if (event := await arrived.get()) is not None:
                    yield event
                ended = event is None
        finally:
            self.cancel()
            while not ended:  # within a token
                ended = await arrived.get() is None
            self._worker.join()
        self._raise()

    @property
    def result(self) -> EpisodeResult:
        """What it came to, once its events have ended without an error."""
        assert self._result is not None
        return self._result

    def launch(self) -> None:
        """For `Runs`: start working."""
        self._worker.start()

    def cancel(self) -> None:
        """End the run within one token, prefill chunk or poll of a tool; safe from any thread, idempotent."""
        self._cancelled.set()
        if self._context is not None:
            self._context.cancel()

    def join(self, timeout_s: float | None = None) -> bool:
        """Wait for the end, and say whether it came; a job does not wait for itself."""
        if threading.current_thread() is not self._worker:
            self._worker.join(timeout_s)
        return not self._worker.is_alive()

    def _start(self, send: Callable[[Event | None], None]) -> None:
        self._send = send
        self._runs.begin(self)

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error

    def _emit(self, event: Event) -> None:
        if self._folder is not None:
            self._folder.log.event(event)
        self._send(event)

    def _work(self) -> None:
        begin = time.monotonic()
        if self._token is not None:
            self._token.attach(self.cancel)
        try:
            self._folder = self._open_folder() if self._open_folder is not None else None
            self._drive()
        except BaseException as error:  # raised again in the reader's thread
            self._error = error
        try:
            self._finish(self._worked_s + time.monotonic() - begin)
        except BaseException as error:
            self._error = self._error or error
        finally:
            if self._folder is not None:
                self._folder.close()
            if self._token is not None:
                self._token.detach(self.cancel)
            self._runs.end(self)
            self._send(None)

    def _drive(self) -> None:
        context = self._open_context(self._emit)
        try:
            self._context = context
            if self._cancelled.is_set():
                context.cancel()
            for state in self._states(context):
                self._state = state
        except TurnCancelledError:
            if not self._cancelled.is_set():
                raise
            self._state = {**self._state, "status": "cancelled"}
        finally:
            context.session.close()

    def _states(self, context: RunContext) -> Iterator[EpisodeState]:
        """The state before the first node, and after each."""
        graph, saved = self._graph, self._folder.checkpoints if self._folder is not None else None
        # LangGraph's own limit must never be the first: every node adds a token to a bounded context.
        config: RunnableConfig = {"recursion_limit": 2 * context.max_context + 100}
        last = None
        if saved is not None:
            config |= saved.config
            last = saved.last(graph)
            graph = saved.attach(graph)
        begin = last.state if last is not None else opening(context, self._started.question)
        if isinstance(self._started, RunResumed):
            self._worked_s = begin["turns_s"] + begin["tools_s"]
            context.deadline -= self._worked_s
            if last is not None and last.ended:  # all that is left to do is to write the result
                self._resumed(begin)
                yield begin
                return
            context.announce = self._resumed
        else:
            self._emit(self._started)
        yield begin
        durability: Literal["sync"] | None = None if saved is None else "sync"
        for state in graph.stream(
            None if last is not None else begin, config, context=context, stream_mode="values", durability=durability
        ):
            yield cast(EpisodeState, state)  # LangGraph types it as Any

    def _resumed(self, state: EpisodeState) -> None:
        """Told by the first node that runs: what was saved of the one before it is in its state by then."""
        seen = {"turns": state["turns"], "observations": len(state["observations"])}
        self._emit(self._started.model_copy(update=seen))

    def _finish(self, total_s: float) -> None:
        started, error = self._started, self._error
        result = result_of(
            self._state,
            run_id=started.run_id,
            team=started.team,
            scheme=started.scheme,
            seed=started.seed,
            adapters=started.adapters,
            total_s=total_s,
            error=None if error is None else f"{type(error).__name__}: {error}",
        )
        try:
            if self._score is not None and error is None:
                result = result.model_copy(update={"score": dict(self._score(result))})
        finally:
            self._result = result
            self._emit(result.event())
            if self._folder is not None:
                self._folder.log.result(result)


def opening(context: RunContext, question: str) -> EpisodeState:
    """The state before the first node: the preamble that opened the session, and the question behind it."""
    renderer, preamble = context.renderer, context.renderer.preamble(context.team.preamble)
    segments = [("system", "preamble", preamble), ("user", "question", renderer.question(question))]
    spans = [
        SpanRecord(
            author=author, kind=kind, path=None, text=renderer.tokenizer.decode(token_ids), token_ids=list(token_ids)
        )
        for author, kind, token_ids in segments
        if token_ids
    ]
    return initial_state(question, spans)
