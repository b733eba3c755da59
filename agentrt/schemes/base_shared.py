"""base_shared: shared base cache; each agent reads everything itself to fill its own low-rank column."""

from dataclasses import dataclass
from typing import ClassVar

from agentrt.cache.layout import KV, Layout, column_plane
from agentrt.cache.store import CacheStore
from agentrt.cache.tape import Tape
from agentrt.schemes.pre_lr_shared import PreLRShared, PreLRSharedSession
from agentrt.step import Pass, Write
from agentrt.trajectory import Trajectory


@dataclass(frozen=True)
class BaseShared(PreLRShared):
    """One adapted pass over everything the agent has not seen: writes its column for all of it, K and V0 only for
    tokens that nobody has processed."""

    name: ClassVar[str] = "base_shared"
    shares: ClassVar[str] = "K and V0 of whoever processed a token; low-rank values are each agent's own"
    recomputes: ClassVar[str] = "all that others wrote, without storing its K and V0 again"
    holds: ClassVar[str] = "one base cache + one low-rank column per agent, as far as it has read"
    exact: ClassVar[str] = "while one agent acts alone"
    adapters: ClassVar[str] = "on q, k, v, o, gate, up, down"
    source: ClassVar[str] = "LRAgent (2602.01053), BaseShared"

    def open(self, layout: Layout, store: CacheStore, trajectory: Trajectory) -> "BaseSharedSession":
        return BaseSharedSession(layout.column_adapters, store, trajectory)


class BaseSharedSession(PreLRSharedSession):
    """Tapes: "base" and one column per adapter that has spoken; a path without a column has read all that is shared.

    base      [ all tokens .................. | new ]
    column j  [ read by j | ....... read again and written now ]
    """

    @property
    def _preamble_parent(self) -> str | None:
        return self._trajectory.processed[0].path if self._base.end else None

    def _turn_tapes(self) -> list[Tape]:
        own = [self._column_tape(self._speaker)] if self._speaker in self._adapters else []
        return [self._base, *own]

    def _advance(self) -> list[Pass]:
        end, shared = len(self._trajectory), self._base.end
        writes = [Write(KV, 0, self._base.extend(end))]
        start = shared
        if self._speaker in self._adapters:
            column = self._column_tape(self._speaker)
            start = column.end
            writes = [writes[0]._replace(first_row=shared - start)]
            writes.append(Write(column_plane(self._speaker), 0, column.extend(end)))
        self._trajectory.mark_processed(end, self._speaker)
        return [self._pass(self._speaker, start, self._base.runs(0, end), writes, "last", own_keys=shared)]
