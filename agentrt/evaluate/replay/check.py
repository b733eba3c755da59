"""The equivalence check of a replay: the engine under a scheme against that scheme's definition, run densely.

A speed-up of something that computes the wrong thing is worth nothing, so no ratio is given without it.
"""

import random
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import torch

from agentrt.engine import Engine, EngineConfig
from agentrt.errors import EngineError
from agentrt.evaluate.replay.adapters import check_adapters
from agentrt.evaluate.replay.definitions import Episode, define
from agentrt.evaluate.replay.maps import fit_maps
from agentrt.evaluate.replay.trace import Trace
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

RIDE_ROWS: Final = 2
"""Few, so that with schedule auto some rows ride in decode steps and some are left for the turn's end."""

NEARER: Final = 0.9
APART: Final = 0.5
"""Another definition fits the engine better if its distance is below NEARER of the own one's, `error`, and the two
definitions differ by APART of that at least: on a short trace some compute the same but for rounding."""

TOLERANCES: Final = {torch.float32: 1e-3, torch.bfloat16: 0.35, torch.float16: 0.05}
"""Largest root mean square difference of the tokens' log-probabilities; half as much again as rounding was seen to do,
0.22 in bf16. Whether what is left of the difference is a scheme's own, the nearest definition tells."""

_OTHERS: Final = ("non_shared", "full_shared", "pre_lr_shared", "rebase_shared")


class Check(NamedTuple):
    """`error` and `separation` are root mean squares of differences of log-probabilities over the check's tokens.

    `separation` is how far the nearest other scheme's definition lies. One that lies nearer to what the engine computed
    than the scheme's own is a failure, even within the tolerance.
    `error` is None where nothing came out to compare, `tokens` 0 where there is no definition to compare with.
    """

    ok: bool
    error: float | None
    tolerance: float
    separation: float | None
    tokens: int
    reason: str = ""


class Checker:
    """Checks schemes on a short prefix of one trace with given tokens, under strong random adapters of the same shape.

    The dense side computes whole tensors with an attention of its own, from the schemes' definitions.
    """

    def __init__(self, backbone: Backbone, adapters: AdapterSet, trace: Trace, *, seed: int = 0) -> None:
        self._backbone = backbone
        self._seed = seed
        self._trace = trace.prefix(CALLS, CONTEXT, DECODE)
        self._adapters = check_adapters(adapters, seed=seed, shared_a=adapters.shared_a)
        rng = random.Random(seed)
        # the last one is sampled but never fed
        self._ids = [rng.randrange(backbone.vocab_size) for _ in range(self._trace.num_tokens + 1)]
        self._others: list[tuple[str, Episode, torch.Tensor]] = []

    def check(self, scheme: Scheme) -> Check:
        """Play the prefix under `scheme`. Nothing is raised for a scheme that computes something else."""
        if scheme.maps_file is None:
            return self._check(scheme, self._adapters)
        with tempfile.TemporaryDirectory() as folder:  # the check's adapters have no file of maps
            scheme = fit_maps(scheme, self._backbone, self._adapters, Path(folder), seed=self._seed)
            assert scheme.maps_file is not None
            return self._check(scheme, self._backbone.load_maps(scheme.maps_file, self._adapters, scheme.maps_top))

    def _check(self, scheme: Scheme, adapters: AdapterSet) -> Check:
        """`adapters`: with the scheme's maps, if it takes some."""
        dtype = self._backbone.dtype
        tolerance = TOLERANCES[dtype]
        episode = self._define(scheme)
        if episode is None:
            return Check(False, None, tolerance, None, 0, f"{scheme.name} has no dense definition to be held against")
        wanted = self._dense(episode, adapters)
        others = {name: logprobs for name, other, logprobs in self._known() if other != episode}
        gaps = {name: _rms(logprobs - wanted) for name, logprobs in others.items()}
        separation = min(gaps.values(), default=None)
        try:
            found = _engine(scheme, self._backbone, self._adapters, self._trace, self._ids)
        except EngineError as failure:  # slots that nobody wrote hold no numbers
            return Check(False, None, tolerance, separation, len(wanted), str(failure))
        error = _rms(found - wanted)
        distances = {
            name: _rms(found - logprobs)
            for name, logprobs in others.items()
            if error > tolerance / 10 and gaps[name] > APART * error
        }
        nearest = min(distances, key=lambda name: distances[name], default="")
        reason = ""
        if not error <= tolerance:
            reason = f"rounding in {str(dtype).removeprefix('torch.')} explains {tolerance:.3g} at most"
        elif nearest and distances[nearest] < NEARER * error:
            reason = f"they are nearer to {nearest}'s, {distances[nearest]:.3g}"
        if reason:
            differ = f"log-probabilities of {len(wanted)} tokens differ from the scheme's definition by {error:.3g}"
            reason = f"{differ} (root mean square); {reason}"
        return Check(not reason, error, tolerance, separation, len(wanted), reason)

    def _define(self, scheme: Scheme) -> Episode | None:
        return define(scheme, self._trace.spans, self._ids, self._backbone.layout(self._adapters))

    def _known(self) -> list[tuple[str, Episode, torch.Tensor]]:
        """Definitions to tell a scheme apart from, and what they give; computed once."""
        if not self._others:
            for name in _OTHERS:
                episode = self._define(make_scheme(name))
                assert episode is not None
                self._others.append((name, episode, self._dense(episode, self._adapters)))
        return self._others

    def _dense(self, episode: Episode, adapters: AdapterSet) -> torch.Tensor:
        """Log-probability of every generated token, one tensor for all calls."""
        rows = [row for answer in episode.answers for row in answer]
        logprobs = dense_logits(self._backbone, adapters, episode.rows, rows).log_softmax(-1).cpu()
        following = [self._ids[at] for span in self._trace.spans for at in range(span.read, span.end + 1)]
        return logprobs[torch.arange(len(rows)), torch.tensor(following)]


def _engine(scheme: Scheme, backbone: Backbone, adapters: AdapterSet, trace: Trace, ids: Sequence[int]) -> torch.Tensor:
    logprobs: list[float] = []
    with Engine(
        backbone,
        adapters,
        scheme,
        config=EngineConfig(max_context=len(ids), segment_slots=256, poison=True, ride_rows=RIDE_ROWS),
    ) as engine:
        session = engine.session()
        for index, span in enumerate(trace.spans):
            start = span.start + 1 if index else 0  # the token the call before was left with is in the session
            forced = ids[span.read : span.end + 1]
            sampling = Sampling(max_new_tokens=len(forced), forced=forced)
            logprobs += session.turn(span.agent, ids[start : span.read], sampling).result.logprobs
        session.close()
    return torch.tensor(logprobs)


def _rms(difference: torch.Tensor) -> float:
    return float(difference.double().square().mean().sqrt())
