"""A turn as its caller sees it: tokens while they are sampled, cancellation, and the result with its measurements."""

import queue
import threading
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Literal

from agentrt.process import Process

FinishReason = Literal["stop", "length", "constraint"]


@dataclass(frozen=True)
class TurnUsage:
    """What one turn read, computed and took. Times in seconds, sizes in tokens or bytes."""

    context_tokens: int
    """Tokens that nobody had processed before this turn."""
    reused_tokens: int
    """Earlier tokens whose cache the turn read as it was."""
    recomputed_tokens: int
    """Rows run for tokens that were processed before, in some layers at least, so that this turn could read them."""
    reconstructed_tokens: int
    """Rows of the base path over tokens that another path had read or reads: run for the turn, or owed at its end."""
    generated_tokens: int
    ttft_s: float
    """From the session being quiet (outstanding passes done) to the first token."""
    submit_to_first_token_s: float
    """From the call of `turn` to the first token."""
    decode_tokens_per_s: float
    """After the first token; 0 where only one was generated."""
    kv_bytes: int
    """Bytes of all slots the session held at the turn's end, reserved ones included."""


@dataclass(frozen=True)
class TurnResult:
    """The tokens a turn generated, why it ended, and each token's log-probability under the model."""

    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    logprobs: tuple[float, ...]
    usage: TurnUsage


class Turn:
    """Handle of one running turn. Iterate it once for token ids; closing the iterator early cancels the turn, also
    before the first token."""

    def __init__(self, cancel: Callable[[], None], check_thread: Callable[[], None] = lambda: None) -> None:
        """`check_thread` raises where the calling thread may not wait: it is the one that would end the wait."""
        self._tokens: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._finished = threading.Event()
        self._cancel = cancel
        self._check_thread = check_thread
        self._process = Process()
        self._outcome: TurnResult | BaseException | None = None

    def __iter__(self) -> Generator[int, None, None]:
        self._check_may_wait()
        tokens = self._read()
        next(tokens)  # closing a generator that has not begun would do nothing
        return tokens

    def _read(self) -> Generator[int, None, None]:
        """Token ids, behind one number that is none."""
        try:
            yield -1
            while (token_id := self._tokens.get()) is not None:
                yield token_id
        finally:
            self._tokens.put(None)  # a second iteration ends at once
            self.cancel()
        if isinstance(self._outcome, BaseException):
            raise self._outcome

    def cancel(self) -> None:
        """Stop within one token or prefill chunk; the session returns to its last turn boundary. Idempotent."""
        if not self._finished.is_set():
            self._cancel()

    @property
    def done(self) -> bool:
        return self._finished.is_set()

    @property
    def result(self) -> TurnResult:
        """Wait for the end. Raises what ended the turn early: TurnCancelledError, CacheFullError, EngineError, or
        ResourceError where memory ran out."""
        self._check_may_wait()
        self._finished.wait()
        if isinstance(self._outcome, TurnResult):
            return self._outcome
        assert self._outcome is not None
        raise self._outcome

    def _check_may_wait(self) -> None:
        if not self._finished.is_set():
            self._process.check()
            self._check_thread()

    def publish(self, token_id: int) -> None:
        """For the engine: hand a token to the iterating caller."""
        self._tokens.put(token_id)

    def finish(self, outcome: TurnResult | BaseException) -> None:
        """For the engine: end the turn, once."""
        assert self._outcome is None
        self._outcome = outcome
        self._finished.set()
        self._tokens.put(None)
