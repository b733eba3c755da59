"""own_kv: the control of prefix reuse. Each agent reuses its own prefix, which must change nothing."""

from dataclasses import dataclass
from typing import ClassVar

from agentrt.cache.layout import Layout
from agentrt.cache.store import CacheStore
from agentrt.schemes.non_shared import NonShared, NonSharedSession
from agentrt.step import Pass
from agentrt.trajectory import Trajectory


@dataclass(frozen=True)
class OwnKV(NonShared):
    """Two adapted passes: what others wrote, into the agent's own slots; then the new context, over them."""

    name: ClassVar[str] = "own_kv"
    shares: ClassVar[str] = "nothing: a control, the agent's own prefix is reused"
    source: ClassVar[str] = "routekv (2609.17109), own-KV control"

    def open(self, layout: Layout, store: CacheStore, trajectory: Trajectory) -> "OwnKVSession":
        return OwnKVSession(store, trajectory)


class OwnKVSession(NonSharedSession):
    """Tapes as in non_shared."""

    def _advance(self) -> list[Pass]:
        known = self._trajectory.num_processed
        (whole,) = super()._advance()
        return list(whole.split(known - whole.start)) if whole.start < known < whole.end else [whole]
