"""base_lr_shared: shared base cache and one low-rank column for all; every adapter must have the same A."""

from dataclasses import dataclass
from typing import ClassVar

from agentrt.cache.layout import Layout
from agentrt.cache.plane import PlaneSpec
from agentrt.cache.store import CacheStore
from agentrt.cache.view import Column
from agentrt.errors import SchemeError
from agentrt.schemes.pre_lr_shared import PreLRShared, PreLRSharedSession
from agentrt.trajectory import Trajectory


@dataclass(frozen=True)
class BaseLRShared(PreLRShared):
    """One adapted pass over the new tokens; writes K, V0 and the one column that all agents read with their own B."""

    name: ClassVar[str] = "base_lr_shared"
    shares: ClassVar[str] = "K, V0 and the low-rank values; each agent has its own B"
    recomputes: ClassVar[str] = "nothing"
    holds: ClassVar[str] = "one base cache + one low-rank column"
    exact: ClassVar[str] = "while one agent acts alone"
    adapters: ClassVar[str] = "on q, k, v, o, gate, up, down; all with the same A on k and v"
    source: ClassVar[str] = "LRAgent (2602.01053), BaseLRShared"
    same_a: ClassVar[bool] = True

    def planes(self, layout: Layout) -> tuple[PlaneSpec, ...]:
        return (*layout.base_specs(), *(layout.column_spec(name) for name in layout.column_adapters[:1]))

    def check(self, layout: Layout) -> None:
        if not layout.shared_a:
            raise SchemeError(
                "scheme 'base_lr_shared': the adapters differ in A on v_proj or k_proj, and one column cannot serve "
                "them all; train them with --shared-a, or use pre_lr_shared"
            )

    def open(self, layout: Layout, store: CacheStore, trajectory: Trajectory) -> "BaseLRSharedSession":
        names = layout.column_adapters
        return BaseLRSharedSession(names[:1], frozenset(names), store, trajectory)


class BaseLRSharedSession(PreLRSharedSession):
    """Tapes: "base" and the column of the first adapter, which stands for all."""

    def __init__(
        self, owner: tuple[str, ...], readers: frozenset[str], store: CacheStore, trajectory: Trajectory
    ) -> None:
        super().__init__(owner, store, trajectory)
        self._readers = readers

    def _empty(self, trajectory: Trajectory) -> "BaseLRSharedSession":
        return BaseLRSharedSession(self._adapters, self._readers, self._store, trajectory)

    def _term(self, path: str, part: str, start: int, end: int) -> Column | None:
        return super()._term(self._adapters[0], part, start, end) if path in self._readers else None
