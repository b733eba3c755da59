"""A tape: the slots of one plane that hold positions `[start, end)` of one trajectory, in order."""

from collections.abc import Sequence

from agentrt.cache.slots import Runs, concat, cut, length
from agentrt.cache.store import CacheStore, Claim


class Tape:
    """Append-only runs with a reserved tail.

        start                 end               capacity
        |---- written ----|---- reserved ----|

    `reserve` takes slots for a whole turn, `extend` hands them out, `trim` returns what was not used.
    A forked tape shares its written slots (by reference count) and grows into slots of its own.
    """

    def __init__(self, store: CacheStore, plane: str, start: int = 0) -> None:
        self._store = store
        self.plane = plane
        self.start = start
        self.end = start
        self._runs: Runs = ()

    @property
    def capacity(self) -> int:
        return self.start + length(self._runs)

    def claim(self, end: int) -> Claim:
        """What `grant` needs so that positions up to `end` have slots."""
        after = self._runs[-1].slot + self._runs[-1].size if self._runs else None
        return Claim(self.plane, max(0, end - self.capacity), after)

    def grant(self, runs: Runs) -> None:
        self._runs = concat(self._runs, runs)

    def extend(self, end: int) -> Runs:
        """Slots of positions `[self.end, end)`, which must be reserved; they count as written from now on."""
        assert self.end <= end <= self.capacity, (self.end, end, self.capacity)
        runs = self.runs(self.end, end)
        self.end = end
        return runs

    def runs(self, start: int, end: int) -> Runs:
        """Slots of positions `[start, end)`."""
        assert self.start <= start <= end <= self.capacity, (self.start, start, end, self.capacity)
        return cut(self._runs, start - self.start, end - self.start)

    def lend(self, start: int) -> "Tape":
        """A tape of its own from `start` on, over this one's reserved slots there; `take_back` ends it."""
        assert self.end <= start
        lent = Tape(self._store, self.plane, start)
        lent._runs = self.runs(start, self.capacity)
        self._runs = self.runs(self.start, start)
        return lent

    def take_back(self, lent: "Tape") -> None:
        """Have the lent slots again, as reserved ones. `lent` holds nothing afterwards."""
        assert lent.start == self.capacity
        self._runs = concat(self._runs, lent._runs)
        lent._runs = ()

    def crop(self, end: int) -> None:
        """Free every slot from position `end` on, reserved ones too."""
        end = max(end, self.start)
        if end < self.capacity:
            self._store.release(self.plane, self.runs(end, self.capacity))
            self._runs = cut(self._runs, 0, end - self.start)
        self.end = min(self.end, end)

    def trim(self) -> None:
        """Free reserved slots that were not used."""
        self.crop(self.end)

    def adopt(self, runs: Runs) -> None:
        """Share slots that are held and written elsewhere, as the first of this empty tape."""
        assert not self._runs
        self._store.retain(self.plane, runs)
        self._runs, self.end = runs, self.start + length(runs)

    def fork(self) -> "Tape":
        """A second tape over the same written slots."""
        twin = Tape(self._store, self.plane, self.start)
        twin.adopt(self.runs(self.start, self.end))
        return twin

    def close(self) -> None:
        self.crop(self.start)


def reserve(store: CacheStore, wishes: Sequence[tuple[Tape, int]]) -> None:
    """Give every tape slots up to its position, all of them or (CacheFullError) none."""
    granted = store.reserve([tape.claim(end) for tape, end in wishes])
    for (tape, _), runs in zip(wishes, granted, strict=True):
        tape.grant(runs)
