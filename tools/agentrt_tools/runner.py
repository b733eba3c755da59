"""Call a tool with a timeout that holds and retries that make sense. Knows no tool, no model and no state."""

import contextvars
import random
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import NamedTuple

from agentrt_tools.base import Json, Tool, ToolFailed, ToolResult
from agentrt_tools.health import ToolHealth


@dataclass(frozen=True)
class RetryPolicy:
    """How long and how often.

    Before retry n = 1, 2 ... the wait is `backoff_s * 2**(n-1)`, at most `max_backoff_s`, times 1 to 1 + `jitter`.
    """

    timeout_s: float = 10.0
    """Of one attempt."""
    total_s: float = 30.0
    """Of all attempts and the waits between them."""
    attempts: int = 3
    backoff_s: float = 0.5
    max_backoff_s: float = 8.0
    jitter: float = 0.5

    def __post_init__(self) -> None:
        if self.timeout_s <= 0 or self.total_s <= 0 or self.attempts < 1:
            raise ValueError(f"timeouts must be above 0 and attempts at least 1: {self}")
        if self.backoff_s < 0 or self.max_backoff_s < 0 or self.jitter < 0:
            raise ValueError(f"waits must not be negative: {self}")


class ToolCall(NamedTuple):
    """What became of a call: exactly one of `result` and `failure` is there."""

    result: ToolResult | None
    failure: ToolFailed | None
    retries: int
    elapsed_s: float

    @property
    def health(self) -> ToolHealth:
        """The counters of this one call, to be added up."""
        return ToolHealth(
            calls=1,
            misses=int(self.result is not None and self.result.miss),
            retries=self.retries,
            failures={self.failure.kind: 1} if self.failure is not None else {},
        )


class ToolRunner:
    """Runs tools under one policy, from any number of threads; the clock and the dice can be replaced in tests."""

    def __init__(
        self,
        policy: RetryPolicy | None = None,
        *,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
        dice: Callable[[], float] = random.random,
    ) -> None:
        self._policy = policy or RetryPolicy()
        self._sleep = sleep
        self._clock = clock
        self._dice = dice

    def call(self, tool: Tool, argument: str, state: Mapping[str, Json], *, question: str = "") -> ToolCall:
        """Call the tool; never raises for what the tool does, and returns in `total_s` even if the tool hangs.

        Only failures that the tool marks as retryable, and timeouts, are tried again.
        """
        policy, start = self._policy, self._clock()
        retries = 0
        while True:
            left_s = policy.total_s - (self._clock() - start)
            try:
                result = _attempt(tool, argument, state, question, min(policy.timeout_s, left_s))
                return ToolCall(result, None, retries, self._clock() - start)
            except ToolFailed as failure:
                elapsed_s = self._clock() - start
                wait_s = self._wait_s(retries, failure)
                last = retries + 1 >= policy.attempts or elapsed_s + wait_s >= policy.total_s
                if last or not failure.retryable:
                    return ToolCall(None, failure, retries, elapsed_s)
            self._sleep(wait_s)
            retries += 1

    def _wait_s(self, retries: int, failure: ToolFailed) -> float:
        policy = self._policy
        backoff_s = min(policy.backoff_s * 2.0**retries, policy.max_backoff_s) * (1 + policy.jitter * self._dice())
        return max(backoff_s, failure.retry_after_s or 0.0)


def _attempt(tool: Tool, argument: str, state: Mapping[str, Json], question: str, timeout_s: float) -> ToolResult:
    """One try in a thread of its own, left behind if it does not end in time. Raises ToolFailed only."""
    outcome: Future[ToolResult] = Future()
    context = contextvars.copy_context()

    def work() -> None:
        try:
            outcome.set_result(context.run(tool, argument, dict(state), question=question))
        except BaseException as error:  # handed to the caller, who decides
            outcome.set_exception(error)

    # a daemon, so that a hung tool cannot keep the program from ending
    threading.Thread(target=work, name=f"tool {tool.name}", daemon=True).start()
    try:
        failure = outcome.exception(max(timeout_s, 0.0))
    except TimeoutError:
        message = f"{tool.name} gave no answer in {timeout_s:.3g} s"
        raise ToolFailed("timeout", message, retryable=True) from None
    if failure is None:
        return outcome.result()
    raise _as_tool_failed(tool, failure) from failure


def _as_tool_failed(tool: Tool, error: BaseException) -> ToolFailed:
    if isinstance(error, ToolFailed):
        return error
    if isinstance(error, TimeoutError):
        return ToolFailed("timeout", f"{tool.name}: {error}", retryable=True)
    if isinstance(error, ConnectionError):
        return ToolFailed("network", f"{tool.name}: {error}", retryable=True)
    return ToolFailed(
        "crash", f"{tool.name} raised {type(error).__name__}: {error}", hint="a bug in the tool: report it"
    )
