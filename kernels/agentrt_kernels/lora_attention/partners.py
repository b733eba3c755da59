"""Which rows of a step read the same memory, and where: two of them can then be attended in one go.

Double batching is the case this is for: a speaker and the base path read one token each over one base cache, and
differ in the last tokens and in the low-rank rows. Addresses alone tell; nothing here knows of sessions or schemes.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from agentrt_kernels.lora_attention.pieces import Piece, Row


class Stretch(NamedTuple):
    """Keys that one row reads, or two: by row its number in the step and the piece as it sees it, of one length."""

    members: tuple[tuple[int, Piece], ...]

    @property
    def length(self) -> int:
        return self.members[0][1].length


def stretches(rows: Sequence[Row]) -> Iterator[Stretch]:
    """All that the rows read, each key once a row."""
    for one, other in _couples(rows):
        shared = [] if other is None else list(_shared(rows[one], rows[other]))
        for here, there in shared:
            assert other is not None
            yield Stretch(((one, here), (other, there)))
        seen = sum(here.length for here, _ in shared)
        for number in (one, other):
            if number is not None:
                yield from (Stretch(((number, piece),)) for piece in _after(rows[number], seen))


def _couples(rows: Sequence[Row]) -> Iterator[tuple[int, int | None]]:
    """Each row once: with one that reads at least half of the same keys, or alone."""
    alike: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
    for number, row in enumerate(rows):
        alike[row.pieces[0].k.address, row.length].append(number)
    for numbers in alike.values():
        while numbers:
            one = numbers.pop(0)
            common = [sum(here.length for here, _ in _shared(rows[one], rows[each])) for each in numbers]
            best = max(range(len(common)), key=common.__getitem__, default=None)
            if best is None or 2 * common[best] < rows[one].length:
                yield one, None
            else:
                yield one, numbers.pop(best)


def _shared(one: Row, other: Row) -> Iterator[tuple[Piece, Piece]]:
    """The keys from the first on that both read at the same place, cut where a piece of either ends."""
    here, there = iter(one.pieces), iter(other.pieces)
    a, b = next(here, None), next(there, None)
    while a is not None and b is not None and (a.k, a.v) == (b.k, b.v):
        num = min(a.length, b.length)
        yield a._replace(length=num), b._replace(length=num)
        a = a.after(num) if num < a.length else next(here, None)
        b = b.after(num) if num < b.length else next(there, None)


def _after(row: Row, skip: int) -> Iterator[Piece]:
    for piece in row.pieces:
        if skip < piece.length:
            yield piece.after(skip) if skip else piece
        skip = max(0, skip - piece.length)
