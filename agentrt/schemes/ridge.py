"""ridge: what others wrote is read once with adapters off and translated for each agent by a fitted linear map."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from agentrt.cache.layout import KV, Layout
from agentrt.cache.plane import PlaneSpec
from agentrt.cache.store import CacheStore
from agentrt.cache.tape import Tape, reserve
from agentrt.cache.view import View
from agentrt.errors import SchemeError
from agentrt.schemes.base import Scheme, SharingSession
from agentrt.step import Logits, Map, Pass, Write
from agentrt.trajectory import NEUTRAL, Trajectory


@dataclass(frozen=True)
class Ridge(Scheme):
    """The rejected translator of routekv, kept for comparison.

    maps: the file of fitted maps; it belongs to one backbone and its adapters.
    top: `all`, or at how many layers they apply, those that gained most in the fit; elsewhere neutral rows are copied.
    """

    name: ClassVar[str] = "ridge"
    shares: ClassVar[str] = "K and V of the model with adapters off, as the source of every agent's translation"
    recomputes: ClassVar[str] = "every turn once more with adapters off"
    holds: ClassVar[str] = "one neutral cache + one full cache per agent, as far as it has read"
    exact: ClassVar[str] = "in the first turn; else never"
    adapters: ClassVar[str] = "on q, k, v, o, gate, up, down; those the maps were fitted for"
    source: ClassVar[str] = "routekv (2609.17109), ridge translator"

    maps: str = ""
    top: int | str = "all"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.top != "all" and not (isinstance(self.top, int) and not isinstance(self.top, bool) and self.top >= 0):
            raise SchemeError(f"ridge: top is {self.top!r}; write `all`, or a number of layers from 0 up")

    @property
    def maps_file(self) -> str | None:
        return self.maps

    def with_maps_file(self, file: str) -> "Ridge":
        return replace(self, maps=file)

    @property
    def maps_top(self) -> int | None:
        return None if self.top == "all" else int(self.top)

    def planes(self, layout: Layout) -> tuple[PlaneSpec, ...]:
        return (layout.kv_spec(),)

    def check(self, layout: Layout) -> None:
        if not self.maps:
            raise SchemeError(
                "scheme 'ridge': no maps; fit them with `agentrt profile --ridge` and name the file, ridge:maps=FILE"
            )
        if self.maps_top is not None and self.maps_top > layout.num_layers:
            raise SchemeError(f"ridge: top is {self.top}, the backbone has {layout.num_layers} layers")

    def open(self, layout: Layout, store: CacheStore, trajectory: Trajectory) -> "RidgeSession":
        return RidgeSession(store, trajectory)


class RidgeSession(SharingSession):
    """Tapes: "base" with adapters off, and "own:NAME" for each agent.

    base   [ preamble | earlier turns ................. | owed: adapters off, at the turn's end ]
    own:j  [ read by j | ... translated from base ..... | context | generated, by j             ]
    """

    def __init__(self, store: CacheStore, trajectory: Trajectory) -> None:
        super().__init__(store, trajectory)
        self._read_from = 0

    def _empty(self, trajectory: Trajectory) -> Self:
        return type(self)(self._store, trajectory)

    def begin(self, speaker: str, max_new_tokens: int) -> list[Pass]:
        known = max(self._trajectory.num_processed, 0 if self._base.end else self._trajectory.preamble)
        self._read_from = min(known, len(self._trajectory) - 1)
        return super().begin(speaker, max_new_tokens)

    def catch_up(self) -> list[Pass]:
        end = self._trajectory.num_processed
        reserve(self._store, [(self._base, end)])
        return self._base_passes(end)

    def end(self) -> Sequence[Pass]:
        passes = self._base_passes(self._trajectory.num_processed)
        super().end()
        return passes

    @property
    def _preamble_path(self) -> str:
        return NEUTRAL

    def _preamble_tapes(self) -> list[Tape]:
        return [self._base]

    @property
    def _base(self) -> Tape:
        return self._tape("base", KV)

    def _turn_tapes(self) -> list[Tape]:
        return [self._base] if self._speaker == NEUTRAL else [self._base, self._tape(f"own:{self._speaker}", KV)]

    def _advance(self) -> list[Pass]:
        end = len(self._trajectory)
        if self._speaker == NEUTRAL:
            passes = self._base_passes(end, "last")
            self._trajectory.mark_processed(end, NEUTRAL)
            return passes
        passes = self._base_passes(self._read_from)
        if self._trajectory.num_processed < self._read_from:
            self._trajectory.mark_processed(self._read_from, NEUTRAL)
        own = self._tape(f"own:{self._speaker}", KV)
        maps: tuple[Map, ...] = ()
        if own.end < self._read_from:
            start, source = own.end, self._base.runs(own.end, self._read_from)
            maps = (Map(KV, source, own.extend(self._read_from), start, self._speaker),)
        start = own.end
        writes = (Write(KV, 0, own.extend(end)),)
        self._trajectory.mark_processed(end, self._speaker)
        view = View(KV, own.runs(0, end))
        ids = self._ids(start, end)
        return [*passes, Pass(self._speaker, ids, start, view, writes, "full", "last", maps=maps)]

    def _base_passes(self, end: int, logits: Logits = "none") -> list[Pass]:
        start = self._base.end
        if start >= end:
            return []
        writes = (Write(KV, 0, self._base.extend(end)),)
        view = View(KV, self._base.runs(0, end))
        return [Pass(NEUTRAL, self._ids(start, end), start, view, writes, "full", logits, rebuild=logits == "none")]
