"""neutral_prefix: one cache of the adapter-free model for all agents, up to a boundary; no low-rank columns."""

from dataclasses import dataclass
from typing import ClassVar, Final, Literal, Self, get_args

from agentrt.cache.layout import KV, Layout
from agentrt.cache.plane import PlaneSpec
from agentrt.cache.slots import concat
from agentrt.cache.store import CacheStore
from agentrt.cache.tape import Tape, reserve
from agentrt.cache.view import View
from agentrt.errors import SchemeError
from agentrt.schemes.base import Scheme, SharingSession
from agentrt.schemes.non_shared import NonSharedSession
from agentrt.schemes.rebase_shared import ReBaseShared, ReBaseSharedSession
from agentrt.step import Pass, Write
from agentrt.trajectory import NEUTRAL, Trajectory

Boundary = Literal["native", "early", "question", "full"]
ALL: Final = "all"


@dataclass(frozen=True)
class NeutralPrefix(Scheme):
    """What lies before the boundary is read with adapters off, once for all; the speaker reads on from there.

    boundary: `native`: 0, every agent reads everything itself. `early`: the preamble; what follows is each agent's
        own. `question`: the turn's start; the adapter reads the new context. `full`: the last token, which is all
        the adapter reads. Under the last two the neutral path covers a turn's tokens afterwards.
    schedule: when it does, as in rebase_shared.
    """

    name: ClassVar[str] = "neutral_prefix"
    shares: ClassVar[str] = "K and V of the model with adapters off, up to the boundary; no low-rank values"
    recomputes: ClassVar[str] = "question, full: every turn once more, adapters off; native, early: as non_shared"
    holds: ClassVar[str] = "one cache (+ one turn's private tail); native, early: one per agent behind the boundary"
    exact: ClassVar[str] = "native: always; question: in the first turn; else with equal caches only"
    adapters: ClassVar[str] = "on q, k, v, o, gate, up, down"
    source: ClassVar[str] = "routekv (2609.17109); per turn of an episode: agentrt"

    boundary: str = "question"
    schedule: str = "lp"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.boundary not in get_args(Boundary):
            known = ", ".join(get_args(Boundary))
            raise SchemeError(f"neutral_prefix: unknown boundary {self.boundary!r}; known: {known}")
        if self.boundary == "early" and self.preamble == "paper":
            raise SchemeError("neutral_prefix: boundary early is the preamble's end, which preamble=paper takes away")
        self._rebase()

    @property
    def rides(self) -> bool:
        return self._covers and self._rebase().rides

    def planes(self, layout: Layout) -> tuple[PlaneSpec, ...]:
        return (layout.kv_spec(),)

    def check(self, layout: Layout) -> None:
        """Any adapters are allowed: nothing of them is shared between roles."""

    def open(self, layout: Layout, store: CacheStore, trajectory: Trajectory) -> SharingSession:
        if self._covers:
            return NeutralPrefixSession(self._rebase(), (), store, trajectory)
        return (EarlySession if self.boundary == "early" else NonSharedSession)(store, trajectory)

    @property
    def _covers(self) -> bool:
        """Whether the neutral path covers every turn."""
        return self.boundary in ("question", "full")

    def _rebase(self) -> ReBaseShared:
        """The scheme that runs the same passes and reads columns besides."""
        return ReBaseShared(schedule=self.schedule, adapted_tail=1 if self.boundary == "full" else ALL)


class NeutralPrefixSession(ReBaseSharedSession):
    """Tapes "base" and, during a turn, "private", as in rebase_shared; there are no columns, so the speaker's values
    are written in full."""

    values: ClassVar[Literal["full", "base"]] = "full"


class EarlySession(SharingSession):
    """Tapes: "base" for the preamble, and "own:NAME" behind it for each agent.

    base   [ preamble, adapters off ]
    own:j                           [ everything after it, read by j ]
    """

    def _empty(self, trajectory: Trajectory) -> Self:
        return type(self)(self._store, trajectory)

    def crop(self, length: int) -> None:
        super().crop(length)
        for name in [name for name, tape in self._tapes.items() if tape.start > length]:
            self._tapes.pop(name).close()

    @property
    def _preamble_path(self) -> str:
        return NEUTRAL

    @property
    def _boundary(self) -> int:
        """Where the preamble ends, before the first turn and ever after."""
        return self._base.end or max(0, min(self._trajectory.preamble, len(self._trajectory) - 1))

    @property
    def _base(self) -> Tape:
        return self._tape("base", KV)

    @property
    def _own(self) -> Tape:
        return self._tape(f"own:{self._speaker}", KV, start=self._boundary)

    def _turn_tapes(self) -> list[Tape]:
        return [self._base, self._own] if self._base.end < self._boundary else [self._own]

    def _reserve(self, last: int) -> None:
        reserve(self._store, [(tape, last if tape is self._own else self._boundary) for tape in self._turn_tapes()])

    def _advance(self) -> list[Pass]:
        passes = []
        if self._base.end < self._boundary:
            end = self._boundary
            writes = (Write(KV, 0, self._base.extend(end)),)
            view = View(KV, self._base.runs(0, end))
            passes.append(Pass(NEUTRAL, self._ids(0, end), 0, view, writes, "full", rebuild=True))
            self._trajectory.mark_processed(end, NEUTRAL)
        own, end = self._own, len(self._trajectory)
        start = own.end
        write = Write(KV, 0, own.extend(end))
        self._trajectory.mark_processed(end, self._speaker)
        view = View(KV, concat(self._base.runs(0, own.start), own.runs(own.start, end)))
        return [*passes, Pass(self._speaker, self._ids(start, end), start, view, (write,), "full", "last")]
