"""What one path attends to: runs of slots ordered by position, the low-rank column to add, and rows that differ."""

from dataclasses import dataclass
from typing import NamedTuple

from agentrt.cache.places import Places
from agentrt.cache.slots import Runs, cut, length


class Column(NamedTuple):
    """One adapter's low-rank activations at positions `[start, start + length(runs))`; elsewhere they are zero."""

    plane: str
    start: int
    runs: Runs


class Overlay(NamedTuple):
    """Rows that stand in for the view's own at `places`, in the layers that `plane` covers; `runs` in that order."""

    plane: str
    places: tuple[Places, ...]
    runs: Runs

    def truncate(self, end: int) -> "Overlay":
        """What lies at positions below `end`."""
        places = tuple(each.before(end) for each in self.places if each.start < end)
        return Overlay(self.plane, places, cut(self.runs, 0, sum(map(len, places))))


@dataclass(frozen=True)
class View:
    """K/V of positions `[0, length)`: a key's index in the view is its position.

    `runs` are slots of `plane`. With a `column`, values are V0 + scaling * LR @ B of the reading path's adapter.
    `overlays` lie over different layers. `keys`, slots of the plane KEYS, are read where `plane` has no keys as read.
    """

    plane: str
    runs: Runs
    column: Column | None = None
    overlays: tuple[Overlay, ...] = ()
    keys: Runs = ()

    def __len__(self) -> int:
        return length(self.runs)

    def truncate(self, end: int) -> "View":
        """The view of positions `[0, end)`."""
        column = self.column
        if column is not None:
            column = column._replace(runs=cut(column.runs, 0, max(0, end - column.start)))
        overlays = tuple(overlay.truncate(end) for overlay in self.overlays)
        return View(self.plane, cut(self.runs, 0, end), column, overlays, cut(self.keys, 0, end))
