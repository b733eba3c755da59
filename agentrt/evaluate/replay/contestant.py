"""Whoever can replay a trace, and what one replay measures. The engine under one scheme is a contestant."""

import time
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from agentrt.engine import Engine, EngineConfig, Session, Turn, TurnUsage
from agentrt.evaluate.replay.trace import Trace
from agentrt.model.adapters import AdapterSet
from agentrt.model.backbone import Backbone
from agentrt.model.sampling import Sampling
from agentrt.schemes import Scheme


class Run(NamedTuple):
    """One replay. Seconds are sums over its calls; those of `total_s` have everything in them."""

    ttft_s: float
    """From the session being quiet (earlier calls' passes done) to the first token."""
    submit_to_first_token_s: float
    """The same from the submission on, with passes that earlier calls left outstanding."""
    decode_s: float
    """From the first token of a call to its last."""
    total_s: float
    kv_bytes_peak: int
    prefill_rows: int
    neutral_rows: int
    decode_rows: int
    repaired_layer_rows: int = 0
    """Rows of repairs, counted once for each layer they enter."""


def submit_call(session: Session, trace: Trace, contexts: Sequence[Sequence[int]], index: int) -> Turn:
    """Submit call `index` of a trajectory to its session.

    A call samples one token more than it feeds. That token is the first of the next call's context, so each call
    feeds as many tokens as the trace says, and no pass is waited for that the engine itself does not wait for.
    """
    call, context = trace.calls[index], contexts[index]
    return session.turn(call.agent, context[1:] if index else context, Sampling(max_new_tokens=call.decode + 1))


class Play(Protocol):
    """One replay under way. Its clocks run inside its methods only, so that others may be called in between."""

    def call(self, index: int) -> None:
        """Do call `index` to its end, with its tool wait and the passes it leaves; indices from 0 up."""
        ...

    def end(self) -> Run:
        """What was measured; frees the caches. To be called once, after the last call."""
        ...


class Contestant(Protocol):
    """Replays a trace."""

    @property
    def label(self) -> str: ...

    def begin(self, trace: Trace, contexts: Sequence[Sequence[int]], tool_wait_s: float) -> Play:
        """A replay from an empty trajectory; the tool waits are part of `total_s`. One at a time."""
        ...

    def close(self) -> None: ...


def play(contestant: Contestant, trace: Trace, contexts: Sequence[Sequence[int]], tool_wait_s: float = 0.0) -> Run:
    """A whole replay, nobody else in between."""
    begun = contestant.begin(trace, contexts, tool_wait_s)
    for index in range(len(trace.calls)):
        begun.call(index)
    return begun.end()


class EngineContestant:
    """An engine of its own on a shared backbone; contexts beyond the backbone's positions are allowed.

    `ride_rows` is as in EngineConfig: None lets the engine measure it.
    """

    def __init__(
        self,
        label: str,
        scheme: Scheme,
        backbone: Backbone,
        adapters: AdapterSet,
        *,
        max_tokens: int,
        ride_rows: int | None = None,
    ) -> None:
        self.label = label
        self.token_ids: tuple[int, ...] = ()
        """The trajectory of the last replay; its last token was sampled but not fed."""
        limit = max(backbone.max_positions, max_tokens + 1)
        self.engine = Engine(backbone, adapters, scheme, config=EngineConfig(max_context=limit, ride_rows=ride_rows))

    def begin(self, trace: Trace, contexts: Sequence[Sequence[int]], tool_wait_s: float) -> Play:
        return _EnginePlay(self, trace, contexts, tool_wait_s)

    def close(self) -> None:
        self.engine.close()


class _EnginePlay:
    """Calls as an agent loop would send them: each when the last one's tokens are there and its tool has answered.

    Passes that a call leaves outstanding are waited for inside it. The next call would have waited for them, so
    they count in its `submit_to_first_token_s`, as far as the tool wait does not cover them.
    """

    def __init__(
        self, contestant: EngineContestant, trace: Trace, contexts: Sequence[Sequence[int]], tool_wait_s: float
    ) -> None:
        self._contestant, self._engine = contestant, contestant.engine
        self._trace, self._contexts, self._tool_wait_s = trace, contexts, tool_wait_s
        self._engine.reset_peak()
        self._before = self._engine.stats()
        self._session = self._engine.session()
        self._usages: list[TurnUsage] = []
        self._total_s = 0.0
        self._left_s = [0.0]
        """Per call, how long it waited for what the calls before had left."""

    def call(self, index: int) -> None:
        start = time.perf_counter()
        self._usages.append(submit_call(self._session, self._trace, self._contexts, index).result.usage)
        if self._trace.calls[index].tool and self._tool_wait_s:
            time.sleep(self._tool_wait_s)
        free = time.perf_counter()
        if index + 1 < len(self._trace.calls):
            self._session.wait()
        else:
            self._session.settle()
        self._engine.backbone.synchronize()
        end = time.perf_counter()
        self._left_s.append(end - free)
        self._total_s += end - start

    def end(self) -> Run:
        before, after, usages = self._before, self._engine.stats(), self._usages
        self._contestant.token_ids = tuple(self._session.trajectory.token_ids)
        self._session.close()
        return Run(
            ttft_s=sum(usage.ttft_s for usage in usages),
            submit_to_first_token_s=sum(usage.submit_to_first_token_s for usage in usages) + sum(self._left_s[:-1]),
            decode_s=sum((usage.generated_tokens - 1) / usage.decode_tokens_per_s for usage in usages),
            total_s=self._total_s,
            kv_bytes_peak=after.peak_bytes,
            prefill_rows=after.prefill_rows - before.prefill_rows,
            neutral_rows=after.neutral_rows - before.neutral_rows,
            decode_rows=after.decode_rows - before.decode_rows,
            repaired_layer_rows=after.repaired_layer_rows - before.repaired_layer_rows,
        )
