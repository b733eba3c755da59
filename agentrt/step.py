"""Passes and steps: frozen records that schemes write and the model runs."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from agentrt.cache.slots import Runs, cut, length
from agentrt.cache.view import View

Logits = Literal["none", "last", "all"]
"""Which rows of a pass need logits."""


class Write(NamedTuple):
    """Rows `[first_row, first_row + length(runs))` of a pass go to these slots of `plane`."""

    plane: str
    first_row: int
    runs: Runs

    def rows(self, start: int, end: int) -> "Write":
        """The part of this write that rows `[start, end)` make, counted from `start`."""
        low = max(start - self.first_row, 0)
        runs = cut(self.runs, low, max(low, end - self.first_row))
        return Write(self.plane, max(self.first_row - start, 0), runs)


@dataclass(frozen=True)
class Map:
    """Slots of positions `[start, start + length(target))` filled from those of the same positions in `source`.

    `how` names the adapter whose fitted map is applied. In each layer maps run after all rows of the step are written
    and before any row attends.
    """

    plane: str
    source: Runs
    target: Runs
    start: int
    how: str

    @property
    def end(self) -> int:
        return self.start + length(self.target)


@dataclass(frozen=True)
class Pass:
    """One path over tokens at positions `[start, start + len(token_ids))`.

    `view` covers `[0, start + len(token_ids))`, the slots this pass writes included: in each layer every row of a
    step is written before any row attends, and a row sees keys up to its own position.
    """

    path: str
    token_ids: tuple[int, ...]
    start: int
    view: View
    writes: tuple[Write, ...]
    value: Literal["full", "base"]
    """Whether v_proj adds the adapter's term to the values it writes, or leaves it to the low-rank column."""
    logits: Logits = "none"
    maps: tuple[Map, ...] = ()
    """What must have been translated before the first row attends."""
    rebuild: bool = False
    """Only brings a shared cache up to date: its rows are counted apart, as neutral rows."""

    def __len__(self) -> int:
        return len(self.token_ids)

    @property
    def end(self) -> int:
        return self.start + len(self.token_ids)

    def split(self, rows: int) -> tuple["Pass", "Pass"]:
        """The first `rows` rows and the rest, to be run in this order."""
        assert 0 < rows < len(self)
        middle = self.start + rows
        head = replace(
            self,
            token_ids=self.token_ids[:rows],
            view=self.view.truncate(middle),
            writes=_nonempty(write.rows(0, rows) for write in self.writes),
            logits="all" if self.logits == "all" else "none",
        )
        tail = replace(
            self,
            token_ids=self.token_ids[rows:],
            start=middle,
            writes=_nonempty(write.rows(rows, len(self)) for write in self.writes),
            maps=(),
        )
        return head, tail


def _nonempty(writes: Iterable[Write]) -> tuple[Write, ...]:
    return tuple(write for write in writes if length(write.runs))


@dataclass(frozen=True)
class Step:
    """A packed batch of passes. A pass may read what an earlier pass of the same step writes."""

    passes: tuple[Pass, ...]
