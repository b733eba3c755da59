"""Passes and steps: frozen records that schemes write and the model runs."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import torch

from agentrt.cache.places import Places
from agentrt.cache.slots import Runs, cut, length
from agentrt.cache.view import Column, View

Logits = Literal["none", "last", "all"]
"""Which rows of a pass need logits."""


class Write(NamedTuple):
    """Rows `[first_row, first_row + length(runs))` of a pass go to these slots of `plane`, in the layers it covers."""

    plane: str
    first_row: int
    runs: Runs

    def rows(self, start: int, end: int) -> "Write":
        """The part of this write that rows `[start, end)` make, counted from `start`."""
        low = max(start - self.first_row, 0)
        runs = cut(self.runs, low, max(low, end - self.first_row))
        return Write(self.plane, max(self.first_row - start, 0), runs)


class States(NamedTuple):
    """Slots for one hidden state a row, in a plane that covers one layer: what enters that layer."""

    plane: str
    runs: Runs

    def split(self, rows: int) -> tuple["States", "States"]:
        """Of the first `rows` rows and of the rest."""
        return self._replace(runs=cut(self.runs, 0, rows)), self._replace(runs=cut(self.runs, rows, length(self.runs)))


class Reused(NamedTuple):
    """What a selection compares with: one layer of its view, and which of it each row sees."""

    keys: torch.Tensor  # [T, Hkv, d]
    values: torch.Tensor  # [T, Hkv, d]
    visible: torch.Tensor  # [n, T] bool
    scale: float


Score = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, Reused], torch.Tensor]
"""score(q [n, H, d], k [n, Hkv, d], v [n, Hkv, d], reused): how much each row needs to be computed again, [n]."""


@dataclass(frozen=True)
class Select:
    """Between two layers, keep the rows with the best scores by q, k, v of the second, `layer`.

    `view` is what they are compared with; the pass's own writes of that layer are made for all its rows. `kept` says
    how many go on and is told which; they have `writes` of their own.
    """

    layer: int
    score: Score
    view: View
    kept: Places
    writes: tuple[Write, ...]


@dataclass(frozen=True)
class RowPlan:
    """Where the rows of a pass enter, are stored, thinned and leave.

        source          store         select                 stop
          |  first ... layer | ...  all rows | kept rows ... |

    Rows enter layer `first` from `source` (None: embeddings), and with a `stop` leave before that layer: such a pass
    computes tokens again, and K and V go only to planes that it writes, each in the layers that the plane covers.
    `store` keeps what enters one layer; it may be the layer `stop`. Otherwise nobody reads what comes out of the last
    layer, of which the rows need K and V only.
    """

    first: int = 0
    stop: int | None = None
    source: States | None = None
    store: States | None = None
    select: Select | None = None

    def split(self, rows: int) -> tuple["RowPlan", "RowPlan"]:
        """The plans of the first `rows` rows and of the rest."""
        source, store = (each.split(rows) if each else (None, None) for each in (self.source, self.store))
        return replace(self, source=source[0], store=store[0]), replace(self, source=source[1], store=store[1])

    @property
    def last(self) -> int | None:
        """The layer that rows enter for K and V only, if there is one."""
        return None if self.stop is None or self.store is not None else self.stop - 1

    def layer_rows(self, rows: int) -> int:
        """`rows` rows, counted once for each layer they enter; the plan has a `stop`."""
        assert self.stop is not None
        if self.select is None:
            return rows * (self.stop - self.first)
        whole, rest = self.select.layer + 1 - self.first, self.stop - self.select.layer - 1
        return rows * whole + len(self.select.kept) * rest


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
class MakeKeys:
    """Keys of positions `[start, start + length(target))` as `path` reads them: norm and RoPE of K0 plus its own term.

    `base` are slots of the plane KV, `target` of KEYS; `column` has the path's column at these positions, where it has
    a key term. When it runs: as a map.
    """

    path: str
    start: int
    base: Runs
    column: Column | None
    target: Runs

    @property
    def end(self) -> int:
        return self.start + length(self.target)

    def cut(self, start: int, end: int) -> "MakeKeys | None":
        """The part at positions `[start, end)`, if there is any."""
        start, end = max(start, self.start), min(end, self.end)
        if start >= end:
            return None
        low, high = start - self.start, end - self.start
        column = self.column and self.column._replace(start=start, runs=cut(self.column.runs, low, high))
        return MakeKeys(self.path, start, cut(self.base, low, high), column, cut(self.target, low, high))


@dataclass(frozen=True)
class Pass:
    """One path over tokens at positions `[start, start + len(token_ids))`, through all layers unless it has a `plan`.

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
    keys: tuple[MakeKeys, ...] = ()
    """Keys that must have been made: those at a position before a row there attends."""
    rebuild: bool = False
    """Only brings a shared cache up to date: its rows are counted apart, as neutral rows."""
    plan: RowPlan | None = None
    kept: Places | None = None
    """Of a pass that has been thinned: the positions of its rows. `start` is then below all of them."""

    def __len__(self) -> int:
        return len(self.token_ids)

    @property
    def end(self) -> int:
        return self.start + len(self.token_ids)

    @property
    def positions(self) -> Iterable[int]:
        """Of each row."""
        return range(self.start, self.end) if self.kept is None else self.kept.positions.tolist()

    @property
    def repairs(self) -> bool:
        """Computes tokens again, in some layers; another pass gives the logits."""
        return self.plan is not None and self.plan.stop is not None

    @property
    def num_layer_rows(self) -> int:
        """Rows that enter a layer, summed over the layers, of one that repairs."""
        assert self.plan is not None
        return self.plan.layer_rows(len(self))

    @property
    def num_read(self) -> int:
        """Tokens it reads. One that goes on with rows of a pass before, to thin them, reads none."""
        goes_on = self.plan is not None and self.plan.select is not None and self.plan.source is not None
        return 0 if goes_on else len(self)

    @property
    def splits(self) -> bool:
        """Whether it can be cut. A choice among all rows cannot."""
        return self.plan is None or self.plan.select is None

    def thinned(self) -> "Pass":
        """What is left once the plan's selection has chosen."""
        assert self.plan is not None
        assert self.plan.select is not None
        select = self.plan.select
        ids = tuple(self.token_ids[position - self.start] for position in select.kept.positions.tolist())
        return replace(self, token_ids=ids, kept=select.kept, writes=select.writes)

    def split(self, rows: int) -> tuple["Pass", "Pass"]:
        """The first `rows` rows and the rest, to be run in this order."""
        assert 0 < rows < len(self)
        assert self.splits
        middle = self.start + rows
        plans = (None, None) if self.plan is None else self.plan.split(rows)
        head = replace(
            self,
            token_ids=self.token_ids[:rows],
            view=self.view.truncate(middle),
            writes=_nonempty(write.rows(0, rows) for write in self.writes),
            logits="all" if self.logits == "all" else "none",
            plan=plans[0],
            keys=_present(each.cut(0, middle) for each in self.keys),
        )
        tail = replace(
            self,
            token_ids=self.token_ids[rows:],
            start=middle,
            writes=_nonempty(write.rows(rows, len(self)) for write in self.writes),
            plan=plans[1],
            maps=(),
            keys=_present(each.cut(middle, each.end) for each in self.keys),
        )
        return head, tail


def _nonempty(writes: Iterable[Write]) -> tuple[Write, ...]:
    return tuple(write for write in writes if length(write.runs))


def _present(keys: Iterable[MakeKeys | None]) -> tuple[MakeKeys, ...]:
    return tuple(each for each in keys if each is not None)


@dataclass(frozen=True)
class Step:
    """A packed batch of passes. A pass may read what an earlier pass of the same step writes."""

    passes: tuple[Pass, ...]
