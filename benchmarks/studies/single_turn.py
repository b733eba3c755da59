"""Single-turn answers under routekv's boundaries: one engine a scheme, prefixes warm, an answer with its times."""

import time
from collections.abc import Mapping, Sequence
from statistics import fmean, median
from typing import Any, Final, NamedTuple

from agentrt.engine import Engine, EngineConfig, Session
from agentrt.evaluate.scoring import score
from agentrt.evaluate.statistics import bootstrap_mean
from agentrt.model.sampling import Sampling
from agentrt.model.tokenizer import Tokenizer
from benchmarks.studies.passages import Prompt


class Condition(NamedTuple):
    """`scheme` with a preamble that ends at `boundary`; `adapted`: by a specialist, else by the backbone alone."""

    scheme: str
    boundary: str
    adapted: bool = True


NEUTRAL_UP_TO: Final = "neutral_prefix:boundary=early"

CONDITIONS: Final[Mapping[str, Condition]] = {
    "base_only": Condition("non_shared", "none", adapted=False),
    "native": Condition("non_shared", "none"),
    "own_kv": Condition("own_kv", "question"),
    "early": Condition(NEUTRAL_UP_TO, "early"),
    "question": Condition(NEUTRAL_UP_TO, "question"),
    "full": Condition(NEUTRAL_UP_TO, "full"),
}
"""routekv's sweep. A preamble is what is reused; native and base_only have none, so nothing is warm for them."""


class Answer(NamedTuple):
    correct: bool
    f1: float
    hit_cap: bool
    ttft_s: float
    completion_s: float
    token_ids: tuple[int, ...]


def boundary(prompt: Prompt, name: str) -> int:
    """Tokens before the specialist starts to read."""
    ends = {
        "none": 0,
        "early": len(prompt.instructions),
        "question": len(prompt.instructions) + len(prompt.passages),
        "full": len(prompt.token_ids) - 1,
    }
    return ends[name]


def answers(engine: Engine, adapter: str, prompt: Prompt, end: int, budgets: Sequence[int]) -> dict[int, Answer]:
    """By budget, up to a line's end, after a first session has left its prefix to others. Decoding is greedy: an
    answer that ends within a budget is that of every larger one too."""
    prefix, rest = prompt.token_ids[:end], prompt.token_ids[end:]
    if end:
        with engine.session(prefix) as first:
            _ = first.turn(adapter, rest, Sampling(max_new_tokens=1)).result
    found: dict[int, Answer] = {}
    last: Answer | None = None
    for budget in sorted(budgets):
        if last is None or last.hit_cap:
            with engine.session(prefix) as session:
                last = _answer(session, adapter, prompt, rest, budget, engine.tokenizer)
        found[budget] = last
    return found


def _answer(
    session: Session, adapter: str, prompt: Prompt, rest: Sequence[int], budget: int, tokenizer: Tokenizer
) -> Answer:
    newline = tokenizer.encode("\n")[-1]
    start = time.perf_counter()
    result = session.turn(adapter, rest, Sampling(max_new_tokens=budget, stop=lambda ids: ids[-1] == newline)).result
    took = time.perf_counter() - start
    scored = score(prompt.question, tokenizer.decode(result.token_ids).strip())
    capped = result.finish_reason == "length"
    return Answer(scored.correct, scored.f1, capped, result.usage.submit_to_first_token_s, took, result.token_ids)


def summarise(answers: Sequence[Answer], native: Sequence[Answer] | None) -> dict[str, Any]:
    """Means and medians; with `native`, for the same questions, the paired difference of F1 from it."""
    row: dict[str, Any] = {
        "n": len(answers),
        "em": fmean(float(each.correct) for each in answers),
        "f1": fmean(each.f1 for each in answers),
        "cap_hit_share": fmean(float(each.hit_cap) for each in answers),
        "warm_ttft_s": median(each.ttft_s for each in answers),
        "completion_s": median(each.completion_s for each in answers),
    }
    if native is not None:
        apart = [b.f1 - a.f1 for a, b in zip(native, answers, strict=True)]
        row["f1_minus_native"] = {"mean": fmean(apart), "ci95": bootstrap_mean(apart)}
        same = [a.token_ids == b.token_ids for a, b in zip(native, answers, strict=True)]
        row["same_answers_as_native"] = fmean(map(float, same))
    return row


def two_branches(engine: Engine, adapters: Sequence[str], prompt: Prompt, end: int) -> dict[str, Any]:
    """Bytes held while two specialists stand on one prompt, each after one token; `engine` has kept nothing yet."""
    sessions = [engine.session(prompt.token_ids[:end]) for _ in adapters]
    for session, adapter in zip(sessions, adapters, strict=True):
        _ = session.turn(adapter, prompt.token_ids[end:], Sampling(max_new_tokens=1)).result
        session.settle()
    held, apart = engine.stats().held_bytes, sum(session.kv_bytes for session in sessions)
    for session in sessions:
        session.close()
    return {"held_bytes": held, "sum_of_branches_bytes": apart, "shared_share": round(1 - held / apart, 4)}


def limits(length: int, budgets: Sequence[int]) -> EngineConfig:
    """Room for one prompt with its answer."""
    return EngineConfig(max_context=length + max(budgets) + 2, max_preambles=8)
