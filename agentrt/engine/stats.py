"""Counters of an engine."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Self

from agentrt.cache.prefix import PrefixUse
from agentrt.cache.store import CacheStore
from agentrt.engine.scheduler import Job
from agentrt.model.graphs import GraphUse


@dataclass(frozen=True)
class EngineStats:
    """Counters since the start; rows are tokens run through the layers."""

    steps: int = 0
    prefill_rows: int = 0
    decode_rows: int = 0
    neutral_rows: int = 0
    repaired_layer_rows: int = 0
    """Rows of the selective schemes' repairs, counted once for each layer they enter; in no other counter."""
    held_bytes: int = 0
    peak_bytes: int = 0
    sessions: int = 0
    waited_for_room: int = 0
    """Turns that the KV budget had no room for when they came, but that waited for it."""
    preambles_kept: int = 0
    preambles: tuple[PrefixUse, ...] = ()
    """For each adapter and the path that computed what it read: hits, misses and reused tokens."""
    graphs: GraphUse | None = None
    """Recorded decode steps; None where the setting is off."""

    def after(self, jobs: Iterable[Job]) -> Self:
        """The counters after a step of these jobs, to be called before its tokens are noted."""
        prefill = decode = neutral = repaired = 0
        for job in jobs:
            if job.run.repairs:
                repaired += job.run.num_layer_rows
            elif job.run.rebuild:
                neutral += len(job.run)
            elif job.turn is not None and job.turn.token_ids:
                decode += len(job.run)
            else:
                prefill += len(job.run)
        return replace(
            self,
            steps=self.steps + 1,
            prefill_rows=self.prefill_rows + prefill,
            decode_rows=self.decode_rows + decode,
            neutral_rows=self.neutral_rows + neutral,
            repaired_layer_rows=self.repaired_layer_rows + repaired,
        )

    def waited(self, turns: int) -> Self:
        """The counters after so many more turns have begun to wait for room."""
        return replace(self, waited_for_room=self.waited_for_room + turns) if turns else self

    def at(self, store: CacheStore, sessions: int, graphs: GraphUse | None) -> Self:
        """The counters with what is held now."""
        return replace(
            self,
            held_bytes=store.held_bytes,
            peak_bytes=store.peak_bytes,
            sessions=sessions,
            preambles_kept=len(store.prefixes),
            preambles=store.prefixes.uses,
            graphs=graphs,
        )
