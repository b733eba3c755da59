"""full_shared: one cache for all agents, as computed by whoever processed each token. Cheapest, least faithful."""

from dataclasses import dataclass
from typing import ClassVar

from agentrt.cache.layout import KV, Layout
from agentrt.cache.store import CacheStore
from agentrt.cache.tape import Tape
from agentrt.schemes.non_shared import NonShared, NonSharedSession
from agentrt.trajectory import Trajectory


@dataclass(frozen=True)
class FullShared(NonShared):
    """One adapted pass over the new tokens, into shared slots, values in full."""

    name: ClassVar[str] = "full_shared"
    shares: ClassVar[str] = "K and V, adapter term included"
    recomputes: ClassVar[str] = "nothing"
    holds: ClassVar[str] = "one full cache"
    exact: ClassVar[str] = "while one agent acts alone"
    adapters: ClassVar[str] = "on q, k, v, o, gate, up, down"
    source: ClassVar[str] = "LRAgent (2602.01053), FullShared"

    def open(self, layout: Layout, store: CacheStore, trajectory: Trajectory) -> "FullSharedSession":
        return FullSharedSession(store, trajectory)


class FullSharedSession(NonSharedSession):
    """One tape for everyone."""

    def _turn_tapes(self) -> list[Tape]:
        return [self._tape("shared", KV)]
