"""rebase_shared: a base cache that no adapter has touched, rebuilt after each turn by the neutral path."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from agentrt.cache.layout import KV, Layout, column_plane
from agentrt.cache.slots import concat
from agentrt.cache.store import CacheStore
from agentrt.cache.tape import Tape
from agentrt.cache.view import View
from agentrt.errors import SchemeError
from agentrt.schemes.pre_lr_shared import PreLRShared, PreLRSharedSession, value_adapters
from agentrt.step import Pass, Write
from agentrt.trajectory import NEUTRAL, Trajectory

SCHEDULES = ("lp",)


@dataclass(frozen=True)
class ReBaseShared(PreLRShared):
    """The speaker works in private slots over the neutral base; a neutral pass then rebases its turn.

    `schedule: lp` (lazy prefill): that pass starts when the turn ends, gives way to first tokens of other
    sessions, and is done before its own session reads again.
    """

    name: ClassVar[str] = "rebase_shared"
    shares: ClassVar[str] = "K and V0 of the neutral path; each agent adds its own low-rank values"
    recomputes: ClassVar[str] = "every turn once more, with adapters off"
    holds: ClassVar[str] = "one base cache + one low-rank column per agent (+ one turn's private tail)"
    source: ClassVar[str] = "PReCache (2609.34054), ReBaseShared"

    schedule: str = "lp"

    def __post_init__(self) -> None:
        if self.schedule not in SCHEDULES:
            raise SchemeError(f"rebase_shared: unknown schedule {self.schedule!r}; known: {', '.join(SCHEDULES)}")

    def open(self, layout: Layout, store: CacheStore, trajectory: Trajectory) -> "ReBaseSharedSession":
        return ReBaseSharedSession(value_adapters(layout), store, trajectory)


class ReBaseSharedSession(PreLRSharedSession):
    """Tapes as in pre_lr_shared, and "private" for the speaker's K and V0 while its turn lasts.

    base      [ preamble | earlier turns ...... | rebuilt after this turn ]
    private                                     [ context | generated     ]
    column j  [ ......................................................... ]   written by the adapted pass
    column a  [ ............................... | by the neutral pass     ]
    """

    def _turn_tapes(self) -> list[Tape]:
        return [*super()._turn_tapes(), self._private]

    @property
    def _private(self) -> Tape:
        return self._tape("private", KV, start=max(self._base.end, self._trajectory.preamble))

    def _advance(self) -> list[Pass]:
        passes = []
        preamble, private = self._trajectory.preamble, self._private
        if self._base.end < preamble:
            passes.append(self._shared_pass(NEUTRAL, preamble, "none"))
            self._trajectory.mark_processed(preamble, NEUTRAL)
        start, end = private.end, len(self._trajectory)
        writes = [Write(KV, 0, private.extend(end))]
        if self._speaker in self._adapters:
            writes.append(Write(column_plane(self._speaker), 0, self._column_tape(self._speaker).extend(end)))
        runs = concat(self._base.runs(0, private.start), private.runs(private.start, end))
        view = View(KV, runs, self._column(self._speaker, end))
        self._trajectory.mark_processed(end, self._speaker)
        passes.append(Pass(self._speaker, self._ids(start, end), start, view, tuple(writes), "base", "last"))
        return passes

    def end(self) -> Sequence[Pass]:
        private = self._tapes.pop("private")
        start, end = private.start, private.end
        private.close()
        writes = [Write(KV, 0, self._base.extend(end))]
        for name in self._adapters:
            if name != self._speaker:
                writes.append(Write(column_plane(name), 0, self._column_tape(name).extend(end)))
        super().end()
        view = View(KV, self._base.runs(0, end))
        return [Pass(NEUTRAL, self._ids(start, end), start, view, tuple(writes), "base")]
