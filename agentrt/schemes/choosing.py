"""Repairs that are thinned: whose later layers run for a choice of the unread tokens only."""

from dataclasses import replace
from typing import Final

from agentrt.cache.layout import STATES
from agentrt.cache.tape import Tape
from agentrt.cache.view import View
from agentrt.schemes.selective import Repair, SelectiveSession
from agentrt.step import Pass, RowPlan, Score, Select, States

KEPT: Final = "kept"
"""The plane of chosen rows."""


class ChoosingSession(SelectiveSession):
    """One whose repair is thinned. Up to the layer that chooses rows may come in chunks: there their inputs are stored
    while the turn reads, and one pass enters with all of them, so that the choice does not depend on the chunks."""

    def feed(self) -> list[Pass]:
        self._forget_states()
        return super().feed()

    def end(self) -> tuple[Pass, ...]:
        self._forget_states()
        return tuple(super().end())

    def _wishes(self, last: int) -> list[tuple[Tape, int]]:
        wishes = super()._wishes(last)
        if self._repair is not None and STATES in self._store.planes:
            wishes.append((self._tape(STATES, STATES, self._repair.start), self._repair.end))
        return wishes

    def _choose(
        self, repair: Repair, before: View, after: View, *, layer: int, stop: int, score: Score, written: str = ""
    ) -> list[Pass]:
        """The passes up to `layer` and from there on: rows are chosen for KEPT by `score`, and leave before `stop`.

        Until then all of them write the plane `written`, if it exists.
        """
        ids, writes = self._ids(repair.start, repair.end), self._written(repair, written)
        all_rows = replace(after, overlays=tuple(each for each in after.overlays if each.plane != KEPT))
        kept = repair.places.get(KEPT)
        if kept is None or not len(kept):  # nobody goes on
            stop = self._planes[written][-1] + 1
            return [Pass(repair.agent, ids, repair.start, all_rows, writes, "full", plan=RowPlan(stop=stop))]
        states = States(STATES, self._tapes[STATES].extend(repair.end)) if layer else None
        select = Select(layer, score, before, kept, self._written(repair, KEPT))
        plan = RowPlan(first=layer, stop=stop, source=states, select=select)
        chosen = Pass(repair.agent, ids, repair.start, after, writes, "full", plan=plan)
        if not layer:
            return [chosen]
        return [
            Pass(repair.agent, ids, repair.start, all_rows, writes, "full", plan=RowPlan(stop=layer, store=states)),
            chosen,
        ]

    def _forget_states(self) -> None:
        if STATES in self._tapes:
            self._tapes.pop(STATES).close()
