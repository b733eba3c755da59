"""non_shared: every agent keeps its own full cache and reads everything itself. The exact baseline."""

from dataclasses import dataclass
from typing import ClassVar, Self

from agentrt.cache.layout import KV, Layout
from agentrt.cache.plane import PlaneSpec
from agentrt.cache.store import CacheStore
from agentrt.cache.tape import Tape
from agentrt.cache.view import View
from agentrt.schemes.base import Scheme, SharingSession
from agentrt.step import Pass, Write
from agentrt.trajectory import Trajectory


@dataclass(frozen=True)
class NonShared(Scheme):
    """One adapted pass over everything the agent has not seen, into its own slots, values in full."""

    name: ClassVar[str] = "non_shared"
    shares: ClassVar[str] = "nothing"
    recomputes: ClassVar[str] = "all that others wrote"
    holds: ClassVar[str] = "one full cache per agent"
    exact: ClassVar[str] = "always"
    adapters: ClassVar[str] = "on q, k, v, o, gate, up, down"
    source: ClassVar[str] = "transformers + peft"

    def planes(self, layout: Layout) -> tuple[PlaneSpec, ...]:
        return (layout.kv_spec(),)

    def check(self, layout: Layout) -> None:
        """Any adapters are allowed: nothing of them is shared between roles."""

    def open(self, layout: Layout, store: CacheStore, trajectory: Trajectory) -> "NonSharedSession":
        return NonSharedSession(store, trajectory)


class NonSharedSession(SharingSession):
    """Tapes: one per agent, named by it."""

    def _empty(self, trajectory: Trajectory) -> Self:
        return type(self)(self._store, trajectory)

    def _turn_tapes(self) -> list[Tape]:
        return [self._tape(self._speaker, KV)]

    def _advance(self) -> list[Pass]:
        tape = self._turn_tapes()[0]
        start, end = tape.end, len(self._trajectory)
        written = tape.extend(end)
        self._trajectory.mark_processed(end, self._speaker)
        view = View(KV, tape.runs(0, end))
        return [Pass(self._speaker, self._ids(start, end), start, view, (Write(KV, 0, written),), "full", "last")]
