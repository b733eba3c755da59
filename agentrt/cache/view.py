"""What one path attends to: runs of slots ordered by position, and the low-rank column to add."""

from dataclasses import dataclass
from typing import NamedTuple

from agentrt.cache.slots import Runs, cut, length


class Column(NamedTuple):
    """One adapter's low-rank activations at positions `[start, start + length(runs))`; elsewhere they are zero."""

    plane: str
    start: int
    runs: Runs


@dataclass(frozen=True)
class View:
    """K/V of positions `[0, length)`: a key's index in the view is its position.

    `runs` are slots of `plane`. With a `column`, values are V0 + scaling * LR @ B of the reading path's adapter.
    """

    plane: str
    runs: Runs
    column: Column | None = None

    def __len__(self) -> int:
        return length(self.runs)

    def truncate(self, end: int) -> "View":
        """The view of positions `[0, end)`."""
        column = self.column
        if column is not None:
            column = column._replace(runs=cut(column.runs, 0, max(0, end - column.start)))
        return View(self.plane, cut(self.runs, 0, end), column)
