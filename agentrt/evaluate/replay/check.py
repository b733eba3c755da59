"""The equivalence check of a replay: the engine under a scheme against that scheme's definition, run densely.

A speed-up of something that computes the wrong thing is worth nothing, so no ratio is given without it.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import torch

from agentrt.engine.engine import Engine, EngineConfig
from agentrt.evaluate.replay.adapters import check_adapters
from agentrt.evaluate.replay.definitions import Episode, define
from agentrt.evaluate.replay.trace import Trace, random_contexts
from agentrt.model.adapters import AdapterSet
from agentrt.model.backbone import Backbone
from agentrt.model.dense import dense_logits
from agentrt.model.sampling import Sampling
from agentrt.schemes import Scheme
from agentrt.schemes.make import make_scheme

CALLS: Final = 8
CONTEXT: Final = 24
DECODE: Final = 3
"""The check's trace: the first calls of the one replayed, cut to so many tokens."""

TOLERANCES: Final = {torch.float32: 1e-3, torch.bfloat16: 0.25, torch.float16: 0.05}
"""Largest root mean square difference of the tokens' log-probabilities."""

_OTHERS: Final = ("non_shared", "full_shared", "pre_lr_shared", "rebase_shared")


class Check(NamedTuple):
    """`error` and `separation` are root mean squares of differences of log-probabilities over the check's tokens.

    `separation` is how far the nearest other scheme's definition lies: an error below it tells the schemes apart.
    """

    ok: bool
    error: float | None
    tolerance: float
    separation: float | None
    tokens: int
    reason: str = ""


class _Forced:
    """Makes a turn generate given tokens; the log-probabilities stay the model's own."""

    def __init__(self, token_ids: Sequence[int]) -> None:
        self._ids = token_ids

    def allowed(self, generated: Sequence[int]) -> Sequence[int] | None:
        return self._ids[len(generated) : len(generated) + 1] if len(generated) < len(self._ids) else None


def check_scheme(scheme: Scheme, backbone: Backbone, adapters: AdapterSet, trace: Trace, *, seed: int = 0) -> Check:
    """Play a short prefix of `trace` with given tokens, under strong random adapters of the same shape.

    The dense side computes whole tensors with an attention of its own, from the scheme's definition.
    """
    tolerance = TOLERANCES.get(backbone.dtype, 1e-3)
    short = trace.prefix(CALLS, CONTEXT, DECODE)
    ids = [token for part in random_contexts(short, backbone.vocab_size, seed) for token in part]
    ids += [(7 * token + 1) % backbone.vocab_size for token in ids]
    ids = ids[: short.num_tokens + 1]
    strong = check_adapters(adapters, seed=seed, shared_a=adapters.shared_value_a)
    episode = define(scheme, short.spans, ids)
    if episode is None:
        return Check(False, None, tolerance, None, 0, f"{scheme.name} has no dense definition to be held against")
    wanted = _dense(backbone, strong, episode, short, ids)
    got = _engine(scheme, backbone, strong, short, ids)
    error = _rms(got - wanted)
    gaps = []
    for name in _OTHERS:
        other = define(make_scheme(name), short.spans, ids)
        if other is not None and other != episode:
            gaps.append(_rms(_dense(backbone, strong, other, short, ids) - wanted))
    ok = error <= tolerance
    reason = (
        ""
        if ok
        else (
            f"log-probabilities of {len(wanted)} tokens differ from the scheme's definition by {error:.3g} "
            f"(root mean square; at most {tolerance:.3g} is rounding in {str(backbone.dtype).removeprefix('torch.')})"
        )
    )
    return Check(ok, error, tolerance, min(gaps, default=None), len(wanted), reason)


def _dense(
    backbone: Backbone, adapters: AdapterSet, episode: Episode, trace: Trace, ids: Sequence[int]
) -> torch.Tensor:
    """Log-probability of every generated token, one tensor for all calls."""
    rows = [row for answer in episode.answers for row in answer]
    logprobs = dense_logits(backbone, adapters, episode.rows, rows).log_softmax(-1).cpu()
    following = [ids[position] for span in trace.spans for position in range(span.read, span.end + 1)]
    return logprobs[torch.arange(len(rows)), torch.tensor(following)]


def _engine(scheme: Scheme, backbone: Backbone, adapters: AdapterSet, trace: Trace, ids: Sequence[int]) -> torch.Tensor:
    logprobs: list[float] = []
    with Engine(backbone, adapters, scheme, config=EngineConfig(segment_slots=256, poison=True)) as engine:
        session = engine.session()
        for index, span in enumerate(trace.spans):
            start = span.start + 1 if index else 0  # the token the call before was left with is in the session
            forced = ids[span.read : span.end + 1]
            sampling = Sampling(max_new_tokens=len(forced), constraint=_Forced(forced))
            logprobs += session.turn(span.agent, ids[start : span.read], sampling).result.logprobs
        session.close()
    return torch.tensor(logprobs)


def _rms(difference: torch.Tensor) -> float:
    """Not a number counts as infinitely far."""
    value = float(difference.double().square().mean().sqrt())
    return value if value == value else float("inf")
