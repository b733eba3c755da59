import threading
import time
from collections.abc import Callable, Mapping
from contextvars import ContextVar

import pytest

from agentrt_tools import Json, RetryPolicy, ToolFailed, ToolHealth, ToolResult, ToolRunner


class Scripted:
    """A tool that does one step of its script a call, and the last one from then on."""

    name = "scripted"

    def __init__(self, *steps: Callable[[], ToolResult]) -> None:
        self.steps = list(steps)
        self.calls = 0

    def __call__(self, argument: str, state: Mapping[str, Json], *, question: str = "") -> ToolResult:
        step = self.steps[min(self.calls, len(self.steps) - 1)]
        self.calls += 1
        return step()


class Clock:
    """Time that passes only by waiting."""

    def __init__(self) -> None:
        self.now = 100.0
        self.waits: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds

    def runner(self, **policy: float) -> ToolRunner:
        return ToolRunner(RetryPolicy(**policy), sleep=self.sleep, clock=lambda: self.now, dice=lambda: 0.5)  # type: ignore[arg-type]  # attempts is an int


def ok() -> ToolResult:
    return ToolResult("fine")


def fails(error: BaseException) -> Callable[[], ToolResult]:
    def step() -> ToolResult:
        raise error

    return step


BUSY = ToolFailed("rate_limited", "429", retryable=True)
DENIED = ToolFailed("auth", "403", hint="check the key")


def test_a_result_is_handed_on_with_arguments_and_a_state_of_its_own() -> None:
    given: Mapping[str, Json] = {"page": "A"}

    class Echo:
        name = "echo"

        def __call__(self, argument: str, state: Mapping[str, Json], *, question: str = "") -> ToolResult:
            assert state is not given
            return ToolResult(f"{argument} {question}", state=state)

    call = ToolRunner().call(Echo(), "a", given, question="q")
    assert call.result == ToolResult("a q", state={"page": "A"})
    assert call.health == ToolHealth(calls=1)


def test_a_miss_is_counted_and_no_failure() -> None:
    call = ToolRunner().call(Scripted(lambda: ToolResult("none", miss=True)), "", {})
    assert call.failure is None
    assert call.health == ToolHealth(calls=1, misses=1)


def test_what_may_pass_is_tried_again_with_growing_jittered_waits() -> None:
    clock = Clock()
    call = clock.runner(attempts=4, backoff_s=1.0, max_backoff_s=3.0, jitter=0.4).call(
        Scripted(fails(BUSY), fails(BUSY), fails(BUSY), ok), "", {}
    )
    assert clock.waits == pytest.approx([1.2, 2.4, 3.6])
    assert call.result == ok()
    assert call.health == ToolHealth(calls=1, retries=3)
    assert call.elapsed_s == pytest.approx(7.2)


def test_a_service_that_asks_for_a_wait_gets_it() -> None:
    clock = Clock()
    asked = ToolFailed("rate_limited", "429", retryable=True, retry_after_s=7.0)
    clock.runner().call(Scripted(fails(asked), ok), "", {})
    assert clock.waits == [7.0]


def test_a_wait_longer_than_the_time_left_is_not_begun() -> None:
    clock = Clock()
    asked = ToolFailed("rate_limited", "429", retryable=True, retry_after_s=60.0)
    call = clock.runner(total_s=30.0).call(Scripted(fails(asked), ok), "", {})
    assert clock.waits == []
    assert call.failure is asked


def test_what_will_not_pass_is_not_tried_again() -> None:
    tool = Scripted(fails(DENIED))
    call = ToolRunner().call(tool, "", {})
    assert tool.calls == 1
    assert call.failure is DENIED
    assert str(call.failure) == "auth: 403 (check the key)"
    assert call.health == ToolHealth(calls=1, failures={"auth": 1})


def test_attempts_end() -> None:
    clock, tool = Clock(), Scripted(fails(BUSY))
    call = clock.runner(attempts=3).call(tool, "", {})
    assert tool.calls == 3
    assert call.health == ToolHealth(calls=1, retries=2, failures={"rate_limited": 1})


@pytest.mark.parametrize(
    ("error", "kind", "calls"),
    [
        (TimeoutError("slow"), "timeout", 2),
        (ConnectionResetError("reset"), "network", 2),
        (KeyError("organic"), "crash", 1),
        (SystemExit(3), "crash", 1),
    ],
)
def test_an_exception_of_the_tool_is_a_failure_of_a_kind(error: BaseException, kind: str, calls: int) -> None:
    tool = Scripted(fails(error))
    call = Clock().runner(attempts=2).call(tool, "", {})
    assert call.failure is not None
    assert (call.failure.kind, tool.calls) == (kind, calls)
    assert call.failure.__cause__ is error


def test_no_failure_speaks_to_the_terminal_or_in_several_lines() -> None:
    """What a service or an exception says may hold anything."""
    call = Clock().runner().call(Scripted(fails(ValueError("it says:\r\n\x1b]52;c;ZXZpbA==\x07 \x9b2J"))), "", {})
    assert call.failure is not None
    assert call.failure.message.isprintable()
    assert "it says: ]52;c;ZXZpbA== 2J" in str(call.failure)


def test_a_tool_that_hangs_is_left_behind_in_time() -> None:
    release = threading.Event()

    def hang() -> ToolResult:
        release.wait(30)
        return ok()

    tool = Scripted(hang)
    start = time.perf_counter()
    call = ToolRunner(RetryPolicy(timeout_s=0.05, total_s=0.12, backoff_s=0.01)).call(tool, "", {})
    took_s = time.perf_counter() - start
    release.set()
    assert took_s < 5
    assert call.failure is not None
    assert call.failure.kind == "timeout"
    assert tool.calls >= 2


def test_the_callers_context_reaches_the_tool() -> None:
    variable: ContextVar[str] = ContextVar("variable", default="unset")
    variable.set("set")
    call = ToolRunner().call(Scripted(lambda: ToolResult(variable.get())), "", {})
    assert call.result == ToolResult("set")


@pytest.mark.parametrize("bad", [{"timeout_s": 0}, {"attempts": 0}, {"total_s": -1}, {"backoff_s": -1}])
def test_a_policy_that_makes_no_sense_is_refused(bad: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="must"):
        RetryPolicy(**bad)
