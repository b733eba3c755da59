"""What the schemes of selective recomputation have in common: a shared full cache, and rows each agent computed again.

The shared cache is full_shared's. Before an agent reads new context it repairs some of what others wrote since it last
acted, `U = [T_j, s)`, through its own path; the rows it computes stand in for the shared ones in its view from then on.
"""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Self

from agentrt.cache.layout import KV, Layout
from agentrt.cache.places import Places
from agentrt.cache.plane import PlaneSpec
from agentrt.cache.store import CacheStore
from agentrt.cache.tape import Tape, reserve
from agentrt.cache.view import Overlay, View
from agentrt.schemes.base import Scheme, SharingSession
from agentrt.step import Pass, RowPlan, Write
from agentrt.trajectory import Trajectory


class PlaneLayers(NamedTuple):
    """A scheme's options worked out for one model: the layers that its planes cover; those without do not exist.

    `repaired`: by plane, where rows computed again are kept. `states`: the layer whose input is stored.
    """

    repaired: Mapping[str, tuple[int, ...]]
    states: int | None


@dataclass(frozen=True)
class Selective(Scheme):
    """Subclasses say which layers, and which passes repair."""

    shares: ClassVar[str] = "K and V, adapter term included, but for the rows an agent computed again"
    exact: ClassVar[str] = "while one agent acts alone"
    adapters: ClassVar[str] = "on q, k, v, o, gate, up, down"

    @abstractmethod
    def plane_layers(self, layout: Layout) -> PlaneLayers:
        """Raises SchemeError for layers that the model does not have."""

    def planes(self, layout: Layout) -> tuple[PlaneSpec, ...]:
        repaired, states_at = self.plane_layers(layout)
        states = () if states_at is None else (layout.states_spec(states_at),)
        return (layout.kv_spec(), *(layout.kv_spec(name, only) for name, only in repaired.items()), *states)

    def check(self, layout: Layout) -> None:
        self.plane_layers(layout)


class Repair(NamedTuple):
    """What a turn of `agent` computes again: positions `[start, end)`, and in each plane `places` out of them."""

    agent: str
    start: int
    end: int
    places: Mapping[str, Places]


class SelectiveSession(SharingSession):
    """Tapes: "shared"; one per agent and plane of repaired rows, compact, in the order of positions; "states".

    shared        [ whoever processed the token ......... | new ]
    plane/agent   [ rows of T_j .. s that it computed again ]
    """

    def __init__(self, repaired: Mapping[str, tuple[int, ...]], store: CacheStore, trajectory: Trajectory) -> None:
        super().__init__(store, trajectory)
        self._planes = repaired
        self._reach: dict[str, int] = {}
        """T_j: how far each agent has processed the trajectory itself."""
        self._places: dict[str, tuple[Places, ...]] = {}
        """By tape of repaired rows: the positions they are of."""
        self._boundary = (dict(self._reach), dict(self._places))
        self._repair: Repair | None = None

    def begin(self, speaker: str, max_new_tokens: int) -> list[Pass]:
        self._boundary = (dict(self._reach), dict(self._places))
        start, end = self._reach.get(speaker, 0), self._shared.end
        counts = self._counts(end - start)
        places = {plane: Places(start, end, counts[plane]) for plane in self._planes}
        self._repair = Repair(speaker, start, end, places) if end > start and places else None
        return super().begin(speaker, max_new_tokens)

    def abort(self) -> None:
        super().abort()
        (self._reach, self._places), self._repair = self._boundary, None

    def crop(self, length: int) -> None:
        for name, tape in self._tapes.items():
            if name in self._places:
                self._places[name] = tuple(each.before(length) for each in self._places[name] if each.start < length)
                tape.crop(sum(map(len, self._places[name])))
            else:
                tape.crop(length)
        self._reach = {agent: min(reach, length) for agent, reach in self._reach.items()}

    def fork(self, trajectory: Trajectory) -> Self:
        twin = super().fork(trajectory)
        twin._reach, twin._places = dict(self._reach), dict(self._places)
        return twin

    @abstractmethod
    def _counts(self, unread: int) -> Mapping[str, int]:
        """How many of `unread` tokens get rows in each plane."""

    @abstractmethod
    def _repairs(self, repair: Repair, before: View, after: View) -> list[Pass]:
        """The passes that repair, with the agent's view of `[0, repair.end)` before and after."""

    def _own_plan(self, end: int) -> RowPlan | None:
        """The plan of the pass over new tokens up to `end`."""
        del end
        return None

    @property
    def _shared(self) -> Tape:
        return self._tape("shared", KV)

    def _turn_tapes(self) -> list[Tape]:
        return [self._shared]

    def _reserve(self, last: int) -> None:
        reserve(self._store, self._wishes(last))

    def _wishes(self, last: int) -> list[tuple[Tape, int]]:
        """Tapes and up to where a turn needs them that may reach position `last`."""
        wishes = [(tape, last) for tape in self._turn_tapes()]
        if self._repair is not None:
            for plane, places in self._repair.places.items():
                tape = self._overlay_tape(plane)
                wishes.append((tape, tape.end + len(places)))
        return wishes

    def _advance(self) -> list[Pass]:
        passes = []
        start, end = self._shared.end, len(self._trajectory)
        if self._repair is not None:
            before = self._view(start)
            for plane, places in self._repair.places.items():
                tape, name = self._overlay_tape(plane), self._name(plane)
                tape.extend(tape.end + len(places))
                self._places[name] = (*self._places.get(name, ()), places)
            passes, self._repair = self._repairs(self._repair, before, self._view(start)), None
        written = (Write(KV, 0, self._shared.extend(end)),)
        self._reach[self._speaker] = end
        self._trajectory.mark_processed(end, self._speaker)
        ids, plan = self._ids(start, end), self._own_plan(end)
        return [*passes, Pass(self._speaker, ids, start, self._view(end), written, "full", "last", plan=plan)]

    def _view(self, end: int) -> View:
        """What the speaker reads of `[0, end)`."""
        overlays = []
        for plane in self._planes:
            if places := self._places.get(self._name(plane)):
                tape = self._overlay_tape(plane)
                overlays.append(Overlay(plane, places, tape.runs(0, tape.end)))
        return View(KV, self._shared.runs(0, end), overlays=tuple(overlays))

    def _written(self, repair: Repair, plane: str) -> tuple[Write, ...]:
        """The slots of the turn's repaired rows in `plane`, row by row."""
        if plane not in repair.places:
            return ()
        tape = self._overlay_tape(plane)
        return (Write(plane, 0, tape.runs(tape.end - len(repair.places[plane]), tape.end)),)

    def _overlay_tape(self, plane: str) -> Tape:
        return self._tape(self._name(plane), plane)

    def _name(self, plane: str) -> str:
        return f"{plane}/{self._speaker}"
