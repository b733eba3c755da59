"""Runs a scheme over trajectories whose tokens are given: the scheme's own passes, on the backbone the engine uses.

A call's generated tokens are known, so they are fed at once instead of one by one; what each row reads is the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch

from agentrt.cache.store import CacheStore
from agentrt.errors import DataError, UsageError
from agentrt.model.adapters import AdapterSet
from agentrt.model.backbone import Backbone
from agentrt.schemes import Scheme
from agentrt.step import Pass, Step
from agentrt.trajectory import Trajectory


class Call(NamedTuple):
    """`agent` reads `context` and then generates `generated`, which has at least one token."""

    agent: str
    context: tuple[int, ...]
    generated: tuple[int, ...]


class Reading(NamedTuple):
    """Positions `[start, end)` of a trajectory that a call of `agent` runs through the model first."""

    agent: str
    start: int
    end: int


@dataclass(frozen=True)
class Sample:
    """A trajectory to be forced through the model: an optional preamble, then calls."""

    id: str
    preamble: tuple[int, ...]
    calls: tuple[Call, ...]

    @property
    def token_ids(self) -> tuple[int, ...]:
        return (*self.preamble, *(token for call in self.calls for token in (*call.context, *call.generated)))

    @property
    def agents(self) -> tuple[str, ...]:
        """In the order in which they speak first."""
        return tuple(dict.fromkeys(call.agent for call in self.calls))

    @property
    def authors(self) -> list[str]:
        """Who generated each generated token, in order."""
        return [call.agent for call in self.calls for _ in call.generated]

    @property
    def readings(self) -> list[Reading]:
        """What each call processes: a call leaves its last token to the next."""
        found, start, length = [], 0, len(self.preamble)
        for call in self.calls:
            length += len(call.context) + len(call.generated)
            found.append(Reading(call.agent, start, length - 1))
            start = length - 1
        return found


class Forced(NamedTuple):
    """`logits` [generated tokens of all calls, vocab] in fp32 on the CPU, each row before its token was drawn."""

    logits: torch.Tensor
    rows: int
    """Rows run until nothing is owed, of any path; those of repairs count by the share of layers that they enter."""
    kv_bytes_peak: int


def check_samples(samples: Sequence[Sample], adapters: AdapterSet, backbone: Backbone) -> None:
    """Raise UsageError for none, DataError for samples that these adapters or this backbone cannot run."""
    if not samples:
        raise UsageError("there is no sample trajectory to measure on")
    for sample in samples:
        if "" in sample.agents:
            raise DataError(
                f"trajectory {sample.id}: a role without an adapter (`adapter: none`) speaks in it, and what adapters "
                "share is measured; name one for every role, as --set roles.NAME.adapter=DIR"
            )
        if unknown := sorted(set(sample.agents) - set(adapters.names)):
            known = ", ".join(adapters.names) or "none"
            raise DataError(f"trajectory {sample.id}: there is no adapter for {', '.join(unknown)}; adapters: {known}")
        if not sample.calls or not all(call.generated for call in sample.calls):
            raise DataError(f"trajectory {sample.id}: it has no call, or one that generates nothing")
        if not sample.preamble and not sample.calls[0].context:
            raise DataError(f"trajectory {sample.id}: its first call has nothing to read")
        if len(sample.token_ids) > backbone.max_positions:
            raise DataError(
                f"trajectory {sample.id}: its {len(sample.token_ids):,} tokens exceed the backbone's "
                f"{backbone.max_positions:,} positions"
            )
        if any(not 0 <= token < backbone.vocab_size for token in sample.token_ids):
            raise DataError(
                f"trajectory {sample.id}: a token is outside the vocabulary [0, {backbone.vocab_size}); "
                "it was derived with another tokenizer"
            )


def force(scheme: Scheme, backbone: Backbone, adapters: AdapterSet, sample: Sample) -> Forced:
    """Play `sample` under `scheme`, which these adapters must allow."""
    return backbone.compute.call(_force, scheme, backbone, adapters, sample)


def _force(scheme: Scheme, backbone: Backbone, adapters: AdapterSet, sample: Sample) -> Forced:
    layout = backbone.layout(adapters)
    if scheme.maps_file is not None:
        adapters = backbone.load_maps(scheme.maps_file, adapters, scheme.maps_top)
    total = len(sample.token_ids)
    store = CacheStore(scheme.planes(layout), device=backbone.device, segment_slots=total)
    trajectory = Trajectory()
    trajectory.append(sample.preamble, "system", "preamble")
    trajectory.preamble = len(trajectory) if scheme.preamble == "shared" else 0
    sharing = scheme.open(layout, store, trajectory)
    sharing.may_ride = False
    layer_rows = 0

    def run(passes: Sequence[Pass]) -> list[torch.Tensor]:
        nonlocal layer_rows
        if not passes:
            return []
        layer_rows += sum(e.num_layer_rows if e.repairs else len(e) * layout.num_layers for e in passes)
        found = backbone.run(Step(tuple(passes)), store.planes, adapters)
        return [logits.float().cpu() for logits in found if logits is not None]

    logits: list[torch.Tensor] = []
    for call in sample.calls:
        trajectory.append(call.context, "user", "context")
        logits += run(sharing.begin(call.agent, len(call.generated)))
        trajectory.append(call.generated[:-1], call.agent, "generated")
        if len(call.generated) > 1:
            fed = sharing.feed()
            logits += run([replace(each, logits="all") if each.logits == "last" else each for each in fed])
        run(sharing.end())
        trajectory.append(call.generated[-1:], call.agent, "generated")
    run(sharing.catch_up())
    sharing.close()
    return Forced(torch.cat(logits), round(layer_rows / layout.num_layers), store.peak_bytes)
