"""pre_lr_shared: shared base cache, and every agent's low-rank column computed ahead from the speaker's states."""

from dataclasses import dataclass
from typing import ClassVar, Self

from agentrt.cache.layout import KV, Layout, column_plane
from agentrt.cache.plane import PlaneSpec
from agentrt.cache.store import CacheStore
from agentrt.cache.tape import Tape
from agentrt.cache.view import Column, View
from agentrt.schemes.base import Scheme, SharingSession, refuse_key_adapters
from agentrt.step import Logits, Pass, Write
from agentrt.trajectory import Trajectory


@dataclass(frozen=True)
class PreLRShared(Scheme):
    """One adapted pass over the new tokens; writes K, V0 and every agent's X @ A."""

    name: ClassVar[str] = "pre_lr_shared"
    shares: ClassVar[str] = "K and V0; each agent adds its own low-rank values"
    recomputes: ClassVar[str] = "nothing"
    holds: ClassVar[str] = "one base cache + one low-rank column per agent"
    exact: ClassVar[str] = "while one agent acts alone"
    adapters: ClassVar[str] = "on every projection but k"
    source: ClassVar[str] = "PReCache (2609.34054), PreLRShared"

    def planes(self, layout: Layout) -> tuple[PlaneSpec, ...]:
        return (layout.kv_spec(), *(layout.column_spec(name) for name in value_adapters(layout)))

    def check(self, layout: Layout) -> None:
        refuse_key_adapters(self.name, layout)

    def open(self, layout: Layout, store: CacheStore, trajectory: Trajectory) -> "PreLRSharedSession":
        return PreLRSharedSession(value_adapters(layout), store, trajectory)


def value_adapters(layout: Layout) -> tuple[str, ...]:
    """The adapters that have a value term, in order: each has a column."""
    return tuple(name for name, rank in layout.ranks.items() if rank)


class PreLRSharedSession(SharingSession):
    """Tapes: "base" for K and V0, and one per adapter for its column, named as its plane."""

    def __init__(self, adapters: tuple[str, ...], store: CacheStore, trajectory: Trajectory) -> None:
        super().__init__(store, trajectory)
        self._adapters = adapters

    def _empty(self, trajectory: Trajectory) -> Self:
        return type(self)(self._adapters, self._store, trajectory)

    def _turn_tapes(self) -> list[Tape]:
        return [self._base, *(self._column_tape(name) for name in self._adapters)]

    def _advance(self) -> list[Pass]:
        end = len(self._trajectory)
        self._trajectory.mark_processed(end, self._speaker)
        return [self._shared_pass(self._speaker, end, "last")]

    @property
    def _base(self) -> Tape:
        return self._tape("base", KV)

    def _shared_pass(self, path: str, end: int, logits: Logits) -> Pass:
        """`path` over the new tokens, into the shared slots, writing every column."""
        start = self._base.end
        writes = [Write(KV, 0, self._base.extend(end))]
        for name in self._adapters:
            writes.append(Write(column_plane(name), 0, self._column_tape(name).extend(end)))
        view = View(KV, self._base.runs(0, end), self._column(path, end))
        return Pass(path, self._ids(start, end), start, view, tuple(writes), "base", logits)

    def _column_tape(self, adapter: str) -> Tape:
        return self._tape(column_plane(adapter), column_plane(adapter))

    def _column(self, path: str, end: int) -> Column | None:
        """What `path` adds to the base values; nothing with adapters off or without a value term."""
        if path not in self._adapters:
            return None
        return Column(column_plane(path), 0, self._column_tape(path).runs(0, end))
