"""A trace ready to be replayed: calls with their lengths and random token ids."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from typing import NamedTuple

from agentrt.config.trace import NEXT, TraceConfig
from agentrt.errors import UsageError


class Call(NamedTuple):
    """`agent` reads `context` new tokens and generates; `decode` of the generated tokens are fed in this call."""

    agent: str
    context: int
    decode: int
    tool: bool = False


class Span(NamedTuple):
    """Positions of one call: context `[start, read)`, generated and fed `[read, end)`."""

    agent: str
    start: int
    read: int
    end: int


@dataclass(frozen=True)
class Trace:
    """`context` is the value of C. Each call feeds its context, then runs `decode` forwards of one token."""

    name: str
    context: int
    agents: tuple[str, ...]
    calls: tuple[Call, ...]

    @property
    def num_tokens(self) -> int:
        """Tokens run through the model at least once: the length of the trajectory."""
        return sum(call.context + call.decode for call in self.calls)

    @property
    def spans(self) -> list[Span]:
        spans, start = [], 0
        for call in self.calls:
            read = start + call.context
            spans.append(Span(call.agent, start, read, read + call.decode))
            start = read + call.decode
        return spans

    def prefix(self, calls: int, context: int, decode: int) -> "Trace":
        """The first calls, each at most this long: the same handovers in few tokens."""
        short = (
            call._replace(context=min(call.context, context), decode=min(call.decode, decode))
            for call in self.calls[:calls]
        )
        return replace(self, calls=tuple(short))


def build_trace(config: TraceConfig, name: str, context: int, agents: Sequence[str]) -> Trace:
    """`config` for C = `context` tokens and these agents. Raises UsageError for a length that cannot be."""
    if context < 1:
        raise UsageError(f"--context {context}: a context has at least 1 token")
    turns = cycle(agents)
    calls = []
    for call in config.flat_calls():
        agent = next(turns) if call.agent == NEXT else call.agent
        calls.append(Call(agent, context if call.context == "C" else call.context, call.decode, call.tool))
    return Trace(name, context, tuple(agents), tuple(calls))


def random_contexts(trace: Trace, vocab_size: int, seed: int) -> list[list[int]]:
    """Token ids of each call's context; the same for every scheme."""
    rng = random.Random(seed)
    return [[rng.randrange(vocab_size) for _ in range(call.context)] for call in trace.calls]
