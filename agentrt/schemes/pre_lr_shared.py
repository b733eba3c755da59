"""pre_lr_shared: shared base cache, and every agent's low-rank column computed ahead from the speaker's states."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Final, Literal, Self

from agentrt.cache.layout import KEYS, KV, Layout, column_plane
from agentrt.cache.plane import PlaneSpec
from agentrt.cache.slots import Runs, cut, length
from agentrt.cache.store import CacheStore
from agentrt.cache.tape import Tape, reserve
from agentrt.cache.view import Column, View
from agentrt.schemes.base import Scheme, SharingSession
from agentrt.step import Logits, MakeKeys, Pass, Write
from agentrt.trajectory import Trajectory

_KEYS_OF: Final = "keys:"


@dataclass(frozen=True)
class PreLRShared(Scheme):
    """One adapted pass over the new tokens; writes K, V0 and every agent's X @ A."""

    name: ClassVar[str] = "pre_lr_shared"
    shares: ClassVar[str] = "K and V0; each agent adds its own low-rank values"
    recomputes: ClassVar[str] = "nothing"
    holds: ClassVar[str] = "one base cache + one low-rank column per agent"
    exact: ClassVar[str] = "while one agent acts alone"
    adapters: ClassVar[str] = "on q, k, v, o, gate, up, down"
    source: ClassVar[str] = "PReCache (2609.34054), PreLRShared"

    def planes(self, layout: Layout) -> tuple[PlaneSpec, ...]:
        return (*layout.base_specs(), *(layout.column_spec(name) for name in layout.column_adapters))

    def check(self, layout: Layout) -> None:
        """Any adapters are allowed."""

    def open(self, layout: Layout, store: CacheStore, trajectory: Trajectory) -> "PreLRSharedSession":
        return PreLRSharedSession(layout.column_adapters, store, trajectory)


class PreLRSharedSession(SharingSession):
    """Tapes: "base" for K and V0, one per adapter for its column, named as its plane, and while a turn lasts, where
    adapters have key terms, "keys:PATH" for the keys as PATH reads them.

        base        [ whoever spoke ............ | context | generated ]    K0, V0
        keys:j      [ made from base and column  | written by j's rows ]    freed when nothing is outstanding
    """

    values: ClassVar[Literal["full", "base"]] = "base"
    """How a speaker's own values are written."""

    def __init__(self, adapters: tuple[str, ...], store: CacheStore, trajectory: Trajectory) -> None:
        super().__init__(store, trajectory)
        self._adapters = adapters
        self._keyed = KEYS in store.planes

    def quiet(self) -> None:
        self._drop_keys()

    def _empty(self, trajectory: Trajectory) -> Self:
        return type(self)(self._adapters, self._store, trajectory)

    def _turn_tapes(self) -> list[Tape]:
        return [self._base, *(self._column_tape(name) for name in self._adapters)]

    def _reserve(self, last: int) -> None:
        reserve(self._store, [*((tape, last) for tape in self._turn_tapes()), *self._turn_keys(last)])

    def _turn_keys(self, last: int) -> list[tuple[Tape, int]]:
        """Which paths read in a turn up to position `last`, and how far: tapes to be reserved for it."""
        return [(self._key_tape(self._speaker), last)] if self._keyed else []

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
        return self._pass(path, start, self._base.runs(0, end), writes, logits)

    def _pass(
        self, path: str, start: int, runs: Runs, writes: Sequence[Write], logits: Logits, own_keys: int | None = None
    ) -> Pass:
        """`path` over positions from `start` on, over K and V0 in `runs` and what it adds to them.

        Rows before `own_keys` (None: none) read the key that is held for their position, not their own.
        """
        end, own = length(runs), start if own_keys is None else own_keys
        view = View(KV, runs, self._term(path, "lr", 0, end))
        made: tuple[MakeKeys, ...] = ()
        if self._keyed:
            keys = self._key_tape(path)
            made = self._make_keys(path, runs, own)
            writes = [*writes, Write(KEYS, own - start, keys.extend(end))]
            view = replace(view, keys=keys.runs(0, end))
        return Pass(path, self._ids(start, end), start, view, tuple(writes), self.values, logits, keys=made)

    def _make_keys(self, path: str, runs: Runs, end: int) -> tuple[MakeKeys, ...]:
        """The keys of `path` that are missing before position `end`, from the base keys in `runs`."""
        keys = self._key_tape(path)
        start = keys.end
        if start >= end:
            return ()
        return (MakeKeys(path, start, cut(runs, start, end), self._term(path, "lrk", start, end), keys.extend(end)),)

    def _column_tape(self, adapter: str) -> Tape:
        return self._tape(column_plane(adapter), column_plane(adapter))

    def _key_tape(self, path: str) -> Tape:
        return self._tape(_KEYS_OF + path, KEYS)

    def _drop_keys(self, *but: str) -> None:
        """Free the keys of all paths, `but` some."""
        kept = [_KEYS_OF + path for path in but]
        for name in [name for name in self._tapes if name.startswith(_KEYS_OF) and name not in kept]:
            self._tapes.pop(name).close()

    def _term(self, path: str, part: str, start: int, end: int) -> Column | None:
        """What `path` adds to values ("lr") or keys ("lrk") at `[start, end)`; None if it has no such term."""
        if path not in self._adapters or not self._store.planes[column_plane(path)].spec.has(part):
            return None
        return Column(column_plane(path), start, self._column_tape(path).runs(start, end))
