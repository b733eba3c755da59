"""The handovers of a trajectory, and the figures of all of them by layer, transition and position."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple

import torch

from agentrt.evaluate.drift.geometry import Tally, distance, pooled, token_figures
from agentrt.evaluate.forced import Sample
from agentrt.model.adapters import AdapterSet
from agentrt.model.backbone import Backbone
from agentrt.model.states import LayerStates, visit_states
from agentrt.trajectory import NEUTRAL

Part = Literal["hidden", "base", "full"]
PARTS: Final[tuple[Part, ...]] = ("hidden", "base", "full")
"""What leaves a layer; K and V without low-rank terms; the whole K and V, as full_shared shares them."""

BIN: Final = 64
"""Tokens that are averaged where figures are drawn against the position."""


class Handover(NamedTuple):
    """Tokens `[start, end)` that `previous` processed and `current` reads from a shared cache, if there is one."""

    previous: str
    current: str
    start: int
    end: int

    @property
    def transition(self) -> str:
        return f"{self.previous} -> {self.current}"


def handovers(sample: Sample) -> list[Handover]:
    """At each call, all that others have processed since its agent last did."""
    found: list[Handover] = []
    known: dict[str, int] = {}
    readings = sample.readings
    for index, now in enumerate(readings):
        since = known.get(now.agent, 0)
        found += [
            Handover(before.agent, now.agent, before.start, before.end)
            for before in readings[:index]
            if before.start >= since and before.end > before.start
        ]
        known[now.agent] = now.end
    return found


class Key(NamedTuple):
    part: Part
    layer: int
    transition: str


class Place(NamedTuple):
    """Positions `[bin * BIN, (bin + 1) * BIN)` in the last layer."""

    part: Part
    bin: int


class Geometry:
    """Adds up trajectories; every agent's states are its own forward over all tokens up to its last call."""

    def __init__(self, num_layers: int) -> None:
        self.num_layers = num_layers
        self.tallies: dict[Key, Tally] = defaultdict(Tally)
        self.places: dict[Place, Tally] = defaultdict(Tally)

    def measure(self, backbone: Backbone, adapters: AdapterSet, sample: Sample) -> None:
        """Run every agent and the model alone over `sample`, and count each token of each handover."""
        ends = {NEUTRAL: 0}
        for handover in handovers(sample):
            for path in (NEUTRAL, handover.previous, handover.current):
                ends[path] = max(ends.get(path, 0), handover.end)
        if ends[NEUTRAL]:
            visit_states(
                backbone, adapters, sample.token_ids, ends, lambda layer, states: self.add(sample, layer, states)
            )

    def add(self, sample: Sample, layer: int, states: Mapping[str, LayerStates]) -> None:
        """Count one layer's states, by path."""
        last = layer == self.num_layers - 1
        for handover in handovers(sample):
            rows = slice(handover.start, handover.end)
            paths = (states[each] for each in (handover.previous, handover.current, NEUTRAL))
            previous, current, neutral = (LayerStates(*(part[rows] for part in each)) for each in paths)
            for part in PARTS:
                i, j, alone = (getattr(each, part) for each in (previous, current, neutral))
                _count(self.tallies[Key(part, layer, handover.transition)], part, i, j, alone)
                if last:
                    self._add_places(part, handover.start, i, j, alone)

    def merge(self, other: "Geometry") -> None:
        """Add the trajectories of `other`."""
        for key, tally in other.tallies.items():
            self.tallies[key].merge(tally)
        for place, tally in other.places.items():
            self.places[place].merge(tally)

    @property
    def stored(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "layers": [[key, tally.stored] for key, tally in self.tallies.items()],
            "places": [[place, tally.stored] for place, tally in self.places.items()],
        }

    @classmethod
    def restore(cls, num_layers: int, stored: Mapping[str, Any]) -> "Geometry":
        """The geometry that `stored` came from."""
        found = cls(num_layers)
        found.tallies |= {Key(*key): Tally.restore(tally) for key, tally in stored["layers"]}
        found.places |= {Place(*place): Tally.restore(tally) for place, tally in stored["places"]}
        return found

    def by_layer(self, part: Part, transition: str | None = None) -> list[Tally]:
        """One tally a layer; of all transitions unless one is named."""
        return [
            pooled(
                tally
                for key, tally in self.tallies.items()
                if key.part == part and key.layer == layer and transition in (None, key.transition)
            )
            for layer in range(self.num_layers)
        ]

    def overall(self, part: Part, transition: str | None = None) -> Tally:
        """Over all layers."""
        return pooled(self.by_layer(part, transition))

    @property
    def transitions(self) -> list[str]:
        return list(dict.fromkeys(key.transition for key in self.tallies))

    def _add_places(self, part: Part, start: int, i: torch.Tensor, j: torch.Tensor, alone: torch.Tensor) -> None:
        first = 0
        while first < len(i):
            number = (start + first) // BIN
            stop = min(len(i), (number + 1) * BIN - start)
            _count(self.places[Place(part, number)], part, i[first:stop], j[first:stop], alone[first:stop])
            first = stop


def _count(tally: Tally, part: Part, i: torch.Tensor, j: torch.Tensor, alone: torch.Tensor) -> None:
    if part == "full":  # the model alone has no term to lack
        tally.add_distance(distance(i, j))
    else:
        tally.add(token_figures(i, j, alone))
