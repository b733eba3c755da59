"""rebase_shared: a base cache of one fixed path (adapters off, or a pivot role), rebuilt where others have spoken."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Final, Literal, Self, get_args

from agentrt.cache.layout import KV, Layout, column_plane
from agentrt.cache.slots import concat
from agentrt.cache.store import CacheStore
from agentrt.cache.tape import Tape, reserve
from agentrt.errors import SchemeError
from agentrt.schemes.pre_lr_shared import PreLRShared, PreLRSharedSession
from agentrt.step import Logits, Pass, Write
from agentrt.trajectory import NEUTRAL, Trajectory

Schedule = Literal["auto", "lp", "db", "fused"]
NEUTRAL_PIVOT: Final = "neutral"


@dataclass(frozen=True)
class ReBaseShared(PreLRShared):
    """The speaker works in private slots over the shared base; a base pass then covers what it read and wrote.

    schedule: when that pass runs. `lp` (lazy prefill): at the turn's end, done before the session reads again.
        `db` (double batching): beside the speaker in every step. `fused`: in the next turn's prefill step.
        `auto`: in the room left in the turn's decode steps, chunk by chunk; what remains is fused if it is at most
        `fuse_rows`, else run at the turn's end. Where the engine has measured no such room, it is `lp`. All leave the
        same cache.
    lp_at: `call`, or `handover`: no base pass while the same agent goes on. It then attends to its own values, so
        the result differs.
    adapted_tail: `all`, or how many of a turn's last context tokens the adapter reads; those before are read by
        the base path only, before the turn.
    pivot: the path that computes the base: `neutral`, or a role, whose own turns then need no second pass.
    """

    name: ClassVar[str] = "rebase_shared"
    shares: ClassVar[str] = "K and V0 of one fixed path; each agent adds its own low-rank values"
    recomputes: ClassVar[str] = "every turn once more by the base path (with a pivot: the other roles' turns)"
    holds: ClassVar[str] = "one base cache + one low-rank column per agent (+ one turn's private tail)"
    exact: ClassVar[str] = "in the first turn; with a pivot role, in each of its turns"
    adapters: ClassVar[str] = "on q, k, v, o, gate, up, down"
    source: ClassVar[str] = "PReCache (2609.34054), ReBaseShared; fused, auto, adapted_tail, pivot: agentrt"

    schedule: str = "auto"
    lp_at: str = "call"
    adapted_tail: int | str = "all"
    pivot: str = NEUTRAL_PIVOT
    fuse_rows: int = 64

    def __post_init__(self) -> None:
        super().__post_init__()
        _one_of("schedule", self.schedule, get_args(Schedule))
        _one_of("lp_at", self.lp_at, ("call", "handover"))
        if self.lp_at == "handover" and self.schedule != "lp":
            raise SchemeError(f"rebase_shared: lp_at=handover needs schedule lp, not {self.schedule}")
        tail = self.adapted_tail
        if tail != "all" and not (isinstance(tail, int) and not isinstance(tail, bool) and tail >= 1):
            raise SchemeError(f"rebase_shared: adapted_tail is {tail!r}; write `all`, or a number of tokens from 1 up")
        if not isinstance(self.fuse_rows, int) or self.fuse_rows < 0:
            raise SchemeError(f"rebase_shared: fuse_rows is {self.fuse_rows!r}; write a number of tokens from 0 up")

    @property
    def rides(self) -> bool:
        return self.schedule == "auto"

    def check(self, layout: Layout) -> None:
        super().check(layout)
        if self.pivot != NEUTRAL_PIVOT and self.pivot not in layout.ranks:
            roles = ", ".join(layout.ranks) or "none"
            raise SchemeError(f"rebase_shared: pivot {self.pivot!r} is not a role with an adapter; roles: {roles}")

    def open(self, layout: Layout, store: CacheStore, trajectory: Trajectory) -> "ReBaseSharedSession":
        return ReBaseSharedSession(self, layout.column_adapters, store, trajectory)


def _one_of(option: str, value: object, known: Sequence[str]) -> None:
    if value not in known:
        raise SchemeError(f"rebase_shared: unknown {option} {value!r}; known: {', '.join(known)}")


class ReBaseSharedSession(PreLRSharedSession):
    """Tapes as in pre_lr_shared, and "private" for the speaker's K and V0 while its turn lasts.

        base      [ preamble | earlier turns ...... | (head of the context) | owed: by the base path, later ]
        private                                                            [ tail of the context | generated ]
        column j  [ ................................................ ]      [ written by the adapted pass     ]
        column a  [ ............................... | by the base path, wherever base is                      ]

    What the base path owes follows from the tapes: positions from the base tape's end to what was processed.
    Where it covers the turn only afterwards, the private slots are the base's own, lent for the turn: the speaker
    reads one run, and the base path then writes over what nobody reads any more.
    """

    def __init__(
        self, scheme: ReBaseShared, adapters: tuple[str, ...], store: CacheStore, trajectory: Trajectory
    ) -> None:
        super().__init__(adapters, store, trajectory)
        self._scheme = scheme
        self._pivot = NEUTRAL if scheme.pivot == NEUTRAL_PIVOT else scheme.pivot
        self._read_from = 0
        self._holder: str | None = None
        """Whose private tail is held between turns (lp_at: handover)."""

    def _empty(self, trajectory: Trajectory) -> Self:
        return type(self)(self._scheme, self._adapters, self._store, trajectory)

    def fork(self, trajectory: Trajectory) -> Self:
        twin = super().fork(trajectory)
        twin._holder = self._holder
        return twin

    def begin(self, speaker: str, max_new_tokens: int) -> list[Pass]:
        if "private" in self._tapes and speaker != self._holder:
            self._tapes["stale"] = self._tapes.pop("private")  # its tokens are read from the base from now on
        self._read_from = self._private_start(speaker)
        return super().begin(speaker, max_new_tokens)

    def _reserve(self, last: int) -> None:
        super()._reserve(last)
        if self._lends and not self._direct:
            self._tapes["private"] = self._base.lend(self._read_from)

    def ride(self, rows: int) -> list[Pass]:
        """A whole chunk or nothing: a pass has its price, and what is left over is fused or run later."""
        end = self._base.end + rows
        if not self._rides or self._direct or end > self._trajectory.num_processed:
            return []
        return self._base_passes(end)

    def end(self) -> Sequence[Pass]:
        if "stale" in self._tapes:
            self._tapes.pop("stale").close()
        if self._scheme.lp_at == "handover" and not self._direct:
            self._holder = self._speaker
            super().end()
            return ()
        private = self._tapes.pop("private", None)
        if private is not None and self._lends:
            self._base.take_back(private)
        elif private is not None:
            private.close()
        owed = self._trajectory.num_processed - self._base.end
        later = self._scheme.schedule == "fused" or (self._rides and owed <= self._scheme.fuse_rows)
        passes = [] if later else self.catch_up()
        super().end()
        return passes

    def catch_up(self) -> list[Pass]:
        end = self._trajectory.num_processed
        if self._base.end >= end:
            return []
        self._drop_keys(self._pivot)  # at a turn's end that makes room for these: the speaker had keys as far
        keys = [self._key_tape(self._pivot)] if self._keyed else []
        reserve(self._store, [(tape, end) for tape in (*super()._turn_tapes(), *keys)])
        return self._base_passes(end)

    def abort(self) -> None:
        super().abort()
        if "stale" in self._tapes:
            self._tapes["private"] = self._tapes.pop("stale")

    def crop(self, length: int) -> None:
        super().crop(length)
        if "private" in self._tapes and self._tapes["private"].start >= length:
            self._tapes.pop("private").close()

    @property
    def _preamble_path(self) -> str:
        return self._pivot

    @property
    def _rides(self) -> bool:
        return self._scheme.rides and self.may_ride

    @property
    def _lends(self) -> bool:
        """The base path writes nothing of a turn while its private slots are read."""
        return self._scheme.schedule != "db" and not self._rides and self._scheme.lp_at == "call"

    @property
    def _direct(self) -> bool:
        """The speaker's own path computes the base."""
        return self._speaker == self._pivot

    def _private_start(self, speaker: str) -> int:
        """Where the speaker's own reading starts: before that, the base is (to be) complete."""
        if "private" in self._tapes:
            return self._tapes["private"].start
        length = len(self._trajectory)
        start = max(self._trajectory.num_processed, self._trajectory.preamble if not self._base.end else 0)
        if self._scheme.adapted_tail != "all" and speaker != self._pivot:
            start = max(start, length - int(self._scheme.adapted_tail))
        return min(start, length - 1)  # the speaker reads at least one token itself

    def _turn_tapes(self) -> list[Tape]:
        own = [] if self._direct or self._lends else [self._tape("private", KV, start=self._read_from)]
        return [*super()._turn_tapes(), *own]

    def _turn_keys(self, last: int) -> list[tuple[Tape, int]]:
        """The base path's too, as far as it reads while the turn lasts."""
        wishes = super()._turn_keys(last)
        if self._keyed and not self._direct:
            beside = self._scheme.schedule == "db" or self._rides
            if beside or self._base.end < self._read_from:
                wishes.append((self._key_tape(self._pivot), last if beside else self._read_from))
        return wishes

    def _advance(self) -> list[Pass]:
        end = len(self._trajectory)
        if self._direct:
            passes = [*self._base_passes(self._trajectory.num_processed), *self._base_passes(end, "last")]
            self._trajectory.mark_processed(end, self._speaker)
            return passes
        private = self._tapes["private"]
        passes = []
        if self._base.end < self._read_from:
            passes += self._base_passes(self._read_from)
            if self._read_from > self._trajectory.num_processed:
                self._trajectory.mark_processed(self._read_from, self._pivot)
        start = private.end
        writes = [Write(KV, 0, private.extend(end))]
        if self._speaker in self._adapters:
            writes.append(Write(column_plane(self._speaker), 0, self._column_tape(self._speaker).extend(end)))
        runs = concat(self._base.runs(0, private.start), private.runs(private.start, end))
        self._trajectory.mark_processed(end, self._speaker)
        adapted = self._pass(self._speaker, start, runs, writes, "last")
        if self._rides and self._keyed:  # made in the prefill, so that decode steps copy no prefix
            base = self._base.runs(0, self._base.end)
            adapted = replace(adapted, keys=(*adapted.keys, *self._make_keys(self._pivot, base, self._base.end)))
        if self._scheme.schedule == "db":
            passes += self._base_passes(end)
        return [*passes, adapted]

    def _base_passes(self, end: int, logits: Logits = "none") -> list[Pass]:
        """The base path up to `end`, writing K, V0 and every column that does not reach that far yet.

        Without logits they rebuild; with them the speaker is the base path, and this is its own reading.
        """
        start = self._base.end
        if start >= end:
            return []
        writes = [Write(KV, 0, self._base.extend(end))]
        for name in self._adapters:
            column = self._column_tape(name)
            if column.end < end:
                first_row = column.end - start
                writes.append(Write(column_plane(name), first_row, column.extend(end)))
        base = self._pass(self._pivot, start, self._base.runs(0, end), writes, logits)
        return [replace(base, value="base", rebuild=logits == "none")]
