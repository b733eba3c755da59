"""One turn of a role, from its label to the text read back. Knows the engine's port; no flow, no LangGraph."""

import hashlib
import time
from collections.abc import Sequence
from typing import Final, NamedTuple

from agentrt.config.team import Emits, SamplingConfig
from agentrt.errors import TurnCancelledError
from agentrt.model.sampling import Sampling
from agentrt.runtime.constraints import FieldConstraint
from agentrt.runtime.dialect import FieldText, Renderer
from agentrt.runtime.events import RoleUsage, Token, TurnFacts
from agentrt.runtime.ports import Tokenizer, TurnResult
from agentrt.runtime.state import RunContext

_LONGEST_CHARACTER: Final = 4
"""Bytes of UTF-8, so tokens too: what is not whole by then never will be."""


class Written(NamedTuple):
    """A finished turn and the field it wrote."""

    field: FieldText
    result: TurnResult

    @property
    def mean_logprob(self) -> float | None:
        logprobs = self.result.logprobs
        return sum(logprobs) / len(logprobs) if logprobs else None


def write(
    context: RunContext, adapter: str, emits: Emits, sampling: Sampling, constraint: FieldConstraint | None, turn: int
) -> Written | None:
    """Have `adapter` write one field behind the context appended so far; None if it was cancelled or ran out of time.

    A cancelled turn leaves the session at the end of that context.
    """
    running = context.session.turn(adapter, sampling=sampling, kind=emits)
    context.started(running)
    text = _TextStream(context.renderer.tokenizer)
    try:
        for token_id in running:
            if context.stream_tokens:
                context.emit(Token(turn=turn, token_id=token_id, text=text.push(token_id)))
            if time.monotonic() > context.deadline:
                running.cancel()
        result = running.result
    except TurnCancelledError:
        return None
    finally:
        context.turn = None
    generated = list(result.token_ids)
    field = constraint.read(generated) if constraint else context.renderer.read(emits, generated)
    return Written(field, result)


def sampling_for(
    config: SamplingConfig,
    renderer: Renderer,
    emits: Emits,
    constraint: FieldConstraint | None,
    *,
    max_new_tokens: int,
    seed: int,
) -> Sampling:
    """A constrained field ends by its constraint, at its longest choice; a free one at a stop string or its limit."""

    def stop(generated: Sequence[int]) -> bool:
        return renderer.stopped(emits, generated)

    return Sampling(
        max_new_tokens=constraint.max_tokens if constraint else max_new_tokens,
        temperature=config.temperature,
        top_p=config.top_p,
        top_k=config.top_k,
        seed=seed,
        stop=None if constraint else stop,
        constraint=constraint,
    )


def turn_seed(seed: int, question: str, turn: int) -> int:
    """A seed per turn that depends on nothing else, so that order and concurrency of episodes do not matter."""
    digest = hashlib.sha256(f"{seed}\0{turn}\0{question}".encode()).digest()
    return int.from_bytes(digest[:8], "big")


def turn_facts(result: TurnResult) -> TurnFacts:
    usage = result.usage
    return TurnFacts(**{name: getattr(usage, name) for name in TurnFacts.model_fields})


def add_turn(usage: RoleUsage, facts: TurnFacts) -> RoleUsage:
    """`usage` with one more turn. A turn's first token is read, not decoded: it counts in the TTFT."""
    turns, generated = usage.turns + 1, usage.generated_tokens + facts.generated_tokens
    rate = facts.decode_tokens_per_s
    decode_s = usage.decode_s + ((facts.generated_tokens - 1) / rate if rate else 0.0)
    return RoleUsage(
        turns=turns,
        reused_tokens=usage.reused_tokens + facts.reused_tokens,
        recomputed_tokens=usage.recomputed_tokens + facts.recomputed_tokens,
        reconstructed_tokens=usage.reconstructed_tokens + facts.reconstructed_tokens,
        generated_tokens=generated,
        ttft_s=(usage.ttft_s * usage.turns + facts.ttft_s) / turns,
        decode_s=decode_s,
        decode_tokens_per_s=(generated - turns) / decode_s if decode_s else 0.0,
        kv_bytes=max(usage.kv_bytes, facts.kv_bytes),
    )


class _TextStream:
    """Text that becomes readable token by token; a character of several tokens is held back until it is whole."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._waiting: list[int] = []

    def push(self, token_id: int) -> str:
        self._waiting.append(token_id)
        text = self._tokenizer.decode(self._waiting)
        if text.endswith("\N{REPLACEMENT CHARACTER}") and len(self._waiting) < _LONGEST_CHARACTER:
            return ""
        self._waiting.clear()
        return text
