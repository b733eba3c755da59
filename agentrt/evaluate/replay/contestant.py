"""Whoever can replay a trace, and what one replay measures. The engine under one scheme is a contestant."""

import time
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from agentrt.engine import Engine, EngineConfig, Session, Turn
from agentrt.evaluate.replay.trace import Trace
from agentrt.model.adapters import AdapterSet
from agentrt.model.backbone import Backbone
from agentrt.model.sampling import Sampling
from agentrt.schemes import Scheme


class Run(NamedTuple):
    """One replay. Seconds are sums over its calls but for `total_s`, the wall time with everything in it."""

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


class Contestant(Protocol):
    """Replays a trace; the first replay is a warm-up."""

    @property
    def label(self) -> str: ...

    def play(self, trace: Trace, contexts: Sequence[Sequence[int]], tool_wait_s: float) -> Run:
        """One replay from an empty trajectory; the tool waits are part of `total_s`."""
        ...

    def close(self) -> None: ...


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

    def play(self, trace: Trace, contexts: Sequence[Sequence[int]], tool_wait_s: float) -> Run:
        """Calls follow each other at once, as an agent loop without tools would send them."""
        engine = self.engine
        engine.reset_peak()
        before = engine.stats()
        session = engine.session()
        usages = []
        start = time.perf_counter()
        for index, call in enumerate(trace.calls):
            usages.append(submit_call(session, trace, contexts, index).result.usage)
            if call.tool and tool_wait_s:
                time.sleep(tool_wait_s)
        session.settle()
        engine.backbone.synchronize()
        total_s = time.perf_counter() - start
        after = engine.stats()
        self.token_ids = tuple(session.trajectory.token_ids)
        session.close()
        return Run(
            ttft_s=sum(usage.ttft_s for usage in usages),
            submit_to_first_token_s=sum(usage.submit_to_first_token_s for usage in usages),
            decode_s=sum((usage.generated_tokens - 1) / usage.decode_tokens_per_s for usage in usages),
            total_s=total_s,
            kv_bytes_peak=after.peak_bytes,
            prefill_rows=after.prefill_rows - before.prefill_rows,
            neutral_rows=after.neutral_rows - before.neutral_rows,
            decode_rows=after.decode_rows - before.decode_rows,
            repaired_layer_rows=after.repaired_layer_rows - before.repaired_layer_rows,
        )

    def close(self) -> None:
        self.engine.close()
