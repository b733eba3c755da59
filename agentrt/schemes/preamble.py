"""One session's use of preambles: takes what others have computed, or computes its own and leaves it to others.

The preamble is a span of its own, found or not: the pass that reads it ends where it ends, so a hit equals a miss.
"""

from collections.abc import Sequence

from agentrt.cache.prefix import Parts
from agentrt.cache.store import CacheStore
from agentrt.cache.tape import Tape
from agentrt.errors import CacheFullError
from agentrt.step import Pass
from agentrt.trajectory import Trajectory


class Preamble:
    """`begin` with each turn, then `publish` once its passes have run, or `give_up`."""

    def __init__(self, store: CacheStore, trajectory: Trajectory) -> None:
        self._store = store
        self._trajectory = trajectory
        self.end = 0
        """Where the preamble ends, if this turn reads or takes it; else 0."""
        self._claimed: str | None = None
        self._tapes: Sequence[Tape] = ()
        self._use: tuple[str, str] | None = None
        self.reused = 0
        """Tokens that this turn took from another session."""

    def begin(self, speaker: str, path: str, tapes: Sequence[Tape], parent: str | None) -> None:
        """Fill the empty `tapes` of a turn of `speaker` with the preamble as `path` reads it, where that is known.

        `parent` is the path whose slots that reading attends to, if some are there already. The speaker always reads
        at least the last token of the context itself. Raises PreamblePending and, where the preamble alone is more
        than the budget, CacheFullError.
        """
        self.reused = 0
        self.end = min(self._trajectory.preamble, len(self._trajectory) - 1) if tapes else 0
        identity, prefixes = self._store.identity, self._store.prefixes
        if self.end <= 0:
            return
        planes = [self._store.planes[tape.plane].spec for tape in tapes]
        self._check_budget(sum(plane.row_bytes for plane in planes))
        if identity is None or not prefixes.enabled:
            return
        token_ids = self._trajectory.token_ids[: self.end]
        root = identity.root if parent is None else identity.link(identity.root, token_ids, parent, ())
        key = identity.link(root, token_ids, path, planes)
        found = prefixes.find(key)
        if found is None:
            self._claimed, self._tapes = key, tapes
        else:
            for tape, (_, runs) in zip(tapes, found, strict=True):
                tape.adopt(runs)
            self.reused = self.end
            if self._trajectory.num_processed < self.end:
                self._trajectory.mark_processed(self.end, path)
        self._use = (speaker, path)

    def cut(self, passes: Sequence[Pass]) -> list[Pass]:
        """The passes, one that reads on from the preamble's tokens cut where the preamble ends."""
        found: list[Pass] = []
        for each in passes:
            inside = each.start < self.end < each.end
            found.extend(each.split(self.end - each.start) if inside else [each])
        return found

    def publish(self) -> None:
        """The turn's first passes have run: leave a preamble it has computed to other sessions. Again does nothing."""
        if self._use is not None:
            self._store.prefixes.count(*self._use, self.reused)
            self._use = None
        if self._claimed is not None:
            parts: Parts = tuple((tape.plane, tape.runs(0, self.end)) for tape in self._tapes)
            assert all(tape.end >= self.end for tape in self._tapes)
            self._store.prefixes.add(self._claimed, parts)
            self._claimed = None

    def give_up(self) -> None:
        """The turn is undone: somebody else may compute what it has not."""
        self._use = None
        if self._claimed is not None:
            self._store.prefixes.give_up(self._claimed)
            self._claimed = None

    def _check_budget(self, token_bytes: int) -> None:
        budget, needed = self._store.budget_bytes, self.end * token_bytes
        if budget is not None and needed > budget:
            raise CacheFullError(
                f"KV budget: the preamble of {self.end:,} tokens alone needs {needed:,} bytes, the budget is "
                f"{budget:,}; raise the budget (kv_budget) beyond that, or shorten the preamble"
            )
