"""droidspeak: one group of neighbouring layers is computed again for what others wrote, from their stored states."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Final, Self

from agentrt.cache.layout import STATES, Layout
from agentrt.cache.store import CacheStore
from agentrt.cache.tape import Tape
from agentrt.cache.view import View
from agentrt.schemes.layer_sets import Layers, check_layers, fit_layers, neighbours, resolve_layers
from agentrt.schemes.selective import PlaneLayers, Repair, Selective, SelectiveSession
from agentrt.step import Pass, RowPlan, States
from agentrt.trajectory import Trajectory

REPAIRED: Final = "repaired"


@dataclass(frozen=True)
class DroidSpeak(Selective):
    """The hidden state that enters the first of `layers` is kept for every token, by whoever processed it. From there
    an agent computes what it has not read itself, through the group; all other layers stay the sender's.

    layers: the group, `a-b` with both ends; `middle` (the middle third), `all`, `none`; or FILE.json, as
        `agentrt profile` measured it.
    """

    name: ClassVar[str] = "droidspeak"
    recomputes: ClassVar[str] = "in a group of layers, all that others wrote"
    holds: ClassVar[str] = "one full cache + one hidden state per token + the group's rows each agent computed again"
    source: ClassVar[str] = "DroidSpeak (2411.02820)"

    layers: Layers = "middle"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_layers(self.name, self.layers)

    def fitted(self, backbone_hash: str, adapter_hashes: Mapping[str, str]) -> Self:
        return replace(self, layers=fit_layers(self.name, self.layers, backbone_hash, adapter_hashes))

    def layer_set(self, layout: Layout) -> tuple[int, ...]:
        """The layers whose K and V are replaced."""
        return neighbours(self.name, resolve_layers(self.name, self.layers, layout.num_layers))

    def plane_layers(self, layout: Layout) -> PlaneLayers:
        layers = self.layer_set(layout)
        return PlaneLayers({REPAIRED: layers}, layers[0]) if layers else PlaneLayers({}, None)

    def open(self, layout: Layout, store: CacheStore, trajectory: Trajectory) -> "DroidSpeakSession":
        return DroidSpeakSession(self.plane_layers(layout).repaired, store, trajectory)


class DroidSpeakSession(SelectiveSession):
    """Tape "states": the hidden state of every token, as its first processor had it."""

    def _empty(self, trajectory: Trajectory) -> "DroidSpeakSession":
        return DroidSpeakSession(self._planes, self._store, trajectory)

    def _counts(self, unread: int) -> Mapping[str, int]:
        return {REPAIRED: unread}

    def _turn_tapes(self) -> list[Tape]:
        return [self._shared, *([self._states] if self._planes else [])]

    def _own_plan(self, end: int) -> RowPlan | None:
        return RowPlan(store=States(STATES, self._states.extend(end))) if self._planes else None

    def _repairs(self, repair: Repair, before: View, after: View) -> list[Pass]:
        layers = self._planes[REPAIRED]
        states = States(STATES, self._states.runs(repair.start, repair.end))
        plan = RowPlan(first=layers[0], stop=layers[-1] + 1, source=states)
        ids, writes = self._ids(repair.start, repair.end), self._written(repair, REPAIRED)
        return [Pass(repair.agent, ids, repair.start, after, writes, "full", plan=plan)]

    @property
    def _states(self) -> Tape:
        return self._tape(STATES, STATES)
