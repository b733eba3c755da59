"""What every sharing scheme is: a frozen set of options, the planes it needs, and the passes of a turn."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import ClassVar, Self

from agentrt.cache.layout import Layout
from agentrt.cache.plane import PlaneSpec
from agentrt.cache.store import CacheStore
from agentrt.cache.tape import Tape, reserve
from agentrt.errors import CacheFullError, SchemeError
from agentrt.schemes.preamble import Preamble
from agentrt.step import Pass
from agentrt.trajectory import Trajectory


@dataclass(frozen=True)
class Scheme(ABC):
    """A sharing policy. Subclasses add their options as fields and say what they share and hold."""

    name: ClassVar[str]
    shares: ClassVar[str]
    recomputes: ClassVar[str]
    holds: ClassVar[str]
    exact: ClassVar[str]
    """When a turn equals transformers + peft."""
    adapters: ClassVar[str]
    """Which adapters are allowed."""
    source: ClassVar[str]
    activated: ClassVar[bool] = False
    """Whether it takes adapters trained as activated LoRA, and no others."""
    same_a: ClassVar[bool] = False
    """Whether it takes only adapters that have the same A on every cached projection."""

    @abstractmethod
    def planes(self, layout: Layout) -> tuple[PlaneSpec, ...]:
        """The planes its sessions write."""

    @abstractmethod
    def open(self, layout: Layout, store: CacheStore, trajectory: Trajectory) -> "SharingSession":
        """The caches of one trajectory."""

    def allow(self, layout: Layout) -> None:
        """Raise SchemeError where these adapters are not allowed: of the wrong kind, or by `check`."""
        self.allow_kinds(layout.ranks, layout.invocations)
        self.check(layout)

    def allow_kinds(self, names: Iterable[str], invocations: Mapping[str, tuple[int, ...]]) -> None:
        """Raise SchemeError for adapters of the wrong kind; `invocations` as in `Layout`."""
        for name in names:
            if name in invocations and not self.activated:
                raise SchemeError(
                    f"scheme {self.name!r}: adapter {name!r} is activated LoRA (alora_invocation_tokens); use the "
                    "scheme alora, or an adapter trained without it"
                )
            if self.activated and name not in invocations:
                raise SchemeError(
                    f"scheme {self.name!r}: adapter {name!r} is no activated LoRA; train it with "
                    "alora_invocation_tokens, or use another scheme, e.g. neutral_prefix"
                )

    @abstractmethod
    def check(self, layout: Layout) -> None:
        """Raise SchemeError where the scheme's own rule does not allow these adapters; called by `allow`."""

    def fitted(self, backbone_hash: str, adapter_hashes: Mapping[str, str]) -> "Scheme":
        """The scheme with measured options read in from the file that names them, if one does.

        Raises SchemeError where that file belongs to another backbone or to other adapters.
        """
        del backbone_hash, adapter_hashes
        return self

    preamble: str = "shared"
    """`shared`: a session's preamble is a span of its own, read by one fixed path before the first turn, and kept for
    other sessions. `paper`: it is the first part of the first turn's context, and nothing is kept."""

    def __post_init__(self) -> None:
        if self.preamble not in ("shared", "paper"):
            raise SchemeError(f"{self.name}: unknown preamble {self.preamble!r}; known: shared, paper")

    @property
    def rides(self) -> bool:
        """Whether its sessions have passes that may run in the room left in decode steps (`ride`)."""
        return False

    @property
    def maps_file(self) -> str | None:
        """The file of fitted maps that its passes' `Map` records need."""
        return None

    def with_maps_file(self, file: str) -> "Scheme":
        """The scheme with its maps from `file`. Only for one whose `maps_file` is not None."""
        raise SchemeError(f"{self.name} takes no maps")

    @property
    def maps_top(self) -> int | None:
        """At how many layers they apply; None = at all."""
        return None

    @property
    def identity(self) -> str:
        """Name and options, in one spelling."""
        return f"{self.name} {sorted(self.options().items())}"

    @classmethod
    def option_names(cls) -> frozenset[str]:
        return frozenset(field.name for field in fields(cls))

    def options(self) -> dict[str, object]:
        return {field.name: getattr(self, field.name) for field in fields(self)}


class SharingSession(ABC):
    """The caches of one trajectory under one scheme, as tapes by name; turns `begin`, `feed`, then `end` or `abort`.

    A turn reserves every slot it may need in `begin`. The passes it returns must run in order (several may share a
    step); the last one yields the logits of the turn's first token.
    """

    def __init__(self, store: CacheStore, trajectory: Trajectory) -> None:
        self._store = store
        self._trajectory = trajectory
        self._tapes: dict[str, Tape] = {}
        self._speaker = ""
        self._preamble = Preamble(store, trajectory)
        self.may_ride = True
        """Whether the engine leaves room for `ride` in decode steps."""
        self._before: dict[str, int] = {}

    def begin(self, speaker: str, max_new_tokens: int) -> list[Pass]:
        """Reserve a turn of `speaker` and return the passes before its first token.

        Raises CacheFullError, or PreamblePending while another session computes the preamble; then nothing is held.
        """
        self._speaker = speaker
        self._before = {name: tape.end for name, tape in self._tapes.items()}
        last = len(self._trajectory) + max_new_tokens - 1  # the last sampled token is fed by the next turn
        try:
            fresh = [tape for tape in self._preamble_tapes() if tape.start == tape.end == 0]
            self._preamble.begin(speaker, self._preamble_path, fresh, self._preamble_parent)
            self._reserve(last)
        except BaseException as error:
            if isinstance(error, CacheFullError) and error.needed_bytes:
                error.needed_bytes += self.kv_bytes
            self.abort()
            raise
        return self._preamble.cut(self._advance())

    @property
    def reused_preamble(self) -> int:
        """How many of this turn's tokens came from another session's preamble."""
        return self._preamble.reused

    def feed(self) -> list[Pass]:
        """The passes that process what the trajectory has gained, one sampled token."""
        self._preamble.publish()
        return self._advance()

    def ride(self, rows: int) -> list[Pass]:
        """At most `rows` rows of work that may run now, beside a decode step, and must if returned."""
        del rows
        return []

    def catch_up(self) -> list[Pass]:
        """What earlier turns still owe, between turns: passes after which nothing is outstanding.

        Raises CacheFullError, but not for a turn that has just ended: it holds the room.
        """
        return []

    def end(self) -> Sequence[Pass]:
        """Commit the turn, free what it did not use, and return the passes that must run before the next turn."""
        self._preamble.publish()
        for tape in self._tapes.values():
            tape.trim()
        return ()

    def quiet(self) -> None:  # noqa: B027 - most have nothing to free
        """Free what only the passes of a turn read: it has ended, and what it still owed has run."""

    def abort(self) -> None:
        """Put every tape back to where `begin` found it."""
        self._preamble.give_up()
        for name in list(self._tapes):
            if name in self._before:
                self._tapes[name].crop(self._before[name])
            else:
                self._tapes.pop(name).close()

    def crop(self, length: int) -> None:
        """Forget positions from `length` on. Only between turns."""
        for tape in self._tapes.values():
            tape.crop(length)

    def fork(self, trajectory: Trajectory) -> Self:
        """A second session over the same slots. Only between turns, with no pass outstanding."""
        twin = self._empty(trajectory)
        twin.may_ride = self.may_ride
        twin._tapes = {name: tape.fork() for name, tape in self._tapes.items()}
        return twin

    def close(self) -> None:
        for tape in self._tapes.values():
            tape.close()

    def _reserve(self, last: int) -> None:
        """Take the slots of the turn's tapes up to position `last`, all or (CacheFullError) none."""
        reserve(self._store, [(tape, last) for tape in self._turn_tapes()])

    @property
    def kv_bytes(self) -> int:
        """Bytes of all slots its tapes hold, reserved ones included."""
        planes = self._store.planes
        return sum((t.capacity - t.start) * planes[t.plane].spec.row_bytes for t in self._tapes.values())

    @property
    def holds_slots(self) -> bool:
        return any(tape.capacity > tape.start for tape in self._tapes.values())

    @property
    def tapes(self) -> Mapping[str, Tape]:
        return self._tapes

    @abstractmethod
    def _empty(self, trajectory: Trajectory) -> Self:
        """A session of the same scheme without tapes."""

    @abstractmethod
    def _turn_tapes(self) -> list[Tape]:
        """The tapes a turn of the current speaker writes, to be reserved up to its last token."""

    def _preamble_tapes(self) -> list[Tape]:
        """Those that hold the preamble as one path read it."""
        return self._turn_tapes()

    @property
    def _preamble_path(self) -> str:
        """Which path reads the preamble into tapes that are still empty."""
        return self._speaker

    @property
    def _preamble_parent(self) -> str | None:
        """The path whose slots that reading attends to, where some are there already."""
        return None

    @abstractmethod
    def _advance(self) -> list[Pass]:
        """Passes that bring the caches up to the end of the trajectory; the last one yields logits."""

    def _tape(self, name: str, plane: str, start: int = 0) -> Tape:
        if name not in self._tapes:
            self._tapes[name] = Tape(self._store, plane, start)
        return self._tapes[name]

    def _ids(self, start: int, end: int) -> tuple[int, ...]:
        return tuple(self._trajectory.token_ids[start:end])
