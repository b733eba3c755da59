"""Plays arriving trajectories on an engine, each in a thread of its own, and times every call."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from agentrt.engine import Engine
from agentrt.evaluate.replay.contestant import submit_call
from agentrt.evaluate.replay.trace import Trace
from agentrt.evaluate.serving.arrivals import Times

Clock = Callable[[], float]


class ServedCall(NamedTuple):
    """Times of one call, in seconds after the start of the load."""

    trajectory: int
    arrived: float
    """When it was due: its own arrival time, or the end of the call before it (and of the tool's wait)."""
    first_token: float
    ended: float

    @property
    def ttft_s(self) -> float:
        """From its arrival to its first token: queueing, outstanding passes and prefill."""
        return self.first_token - self.arrived

    @property
    def latency_s(self) -> float:
        return self.ended - self.arrived


class Served(NamedTuple):
    calls: list[ServedCall]
    kv_bytes_peak: int
    token_ids: list[tuple[int, ...]]
    """The trajectories."""

    @property
    def makespan_s(self) -> float:
        """From the first arrival to the end of the last call."""
        return max(call.ended for call in self.calls) - min(call.arrived for call in self.calls)


def serve(
    engine: Engine,
    trace: Trace,
    contexts: Sequence[Sequence[Sequence[int]]],
    times: Sequence[Times],
    *,
    tool_wait_s: float = 0.0,
    clock: Clock = time.perf_counter,
    sleep: Callable[[float], None] = time.sleep,
) -> Served:
    """Serve one trajectory of `trace` for each of `times`, with the token ids in `contexts`.

    A late start of a thread counts as waiting: a call's clock runs from when it was due.
    """
    engine.reset_peak()
    start = clock()

    def now() -> float:
        return clock() - start

    def play(index: int) -> tuple[list[ServedCall], tuple[int, ...]]:
        served: list[ServedCall] = []
        with engine.session() as session:
            for number, due in enumerate(times[index]):
                if due is not None:
                    sleep(max(0.0, due - now()))
                arrived = now() if due is None else due
                submitted = now()
                usage = submit_call(session, trace, contexts[index], number).result.usage
                served.append(ServedCall(index, arrived, submitted + usage.submit_to_first_token_s, now()))
                if trace.calls[number].tool and tool_wait_s:
                    sleep(tool_wait_s)
            return served, tuple(session.trajectory.token_ids)

    with ThreadPoolExecutor(len(times), thread_name_prefix="agentrt-load") as pool:
        found = list(pool.map(play, range(len(times))))
    calls = [call for served, _ in found for call in served]
    return Served(calls, engine.stats().peak_bytes, [token_ids for _, token_ids in found])
