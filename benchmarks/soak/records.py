"""What the load did, as far as a replay needs it, and what was met on the way. What is kept does not grow with time."""

import random
from typing import Generic, Literal, NamedTuple, TypeVar, get_args

Kept = TypeVar("Kept")

Happening = Literal[
    "episodes",
    "whole_episodes",
    "cancelled_episodes",
    "closed_iterators",
    "tool_calls",
    "tool_timeouts",
    "sessions",
    "turns",
    "cancelled_turns",
    "forks",
    "crops",
    "refused_by_the_queue",
    "refused_for_room",
    "waited_for_room",
]
NOT_NEEDED: tuple[Happening, ...] = ("refused_for_room",)
"""A turn without room is refused only where waiting is of no use, which a load need not come to."""
NEEDED: tuple[Happening, ...] = tuple(each for each in get_args(Happening) if each not in NOT_NEEDED)
"""A load that did not meet each of these proves less than it says."""


class Played(NamedTuple):
    """An episode: what came of it. `whole` is False where it was cut short: `sampled` is then a beginning."""

    question: str
    seed: int
    sampled: tuple[int, ...]
    whole: bool
    failed: tuple[bool, ...]
    """For each tool call, whether it failed: a tool that is late for once changes what follows."""


class Turned(NamedTuple):
    """A turn of a bare session that ran to its end."""

    adapter: str
    context: tuple[int, ...]
    sampled: tuple[int, ...]


class Cropped(NamedTuple):
    """What lay behind `length` tokens of a bare session was forgotten."""

    length: int


History = tuple[Turned | Cropped, ...]
"""What made a bare session what it was, the past of the one that it was forked from included."""


class Sample(Generic[Kept]):
    """At most `size` of all that it is offered, each as likely to be kept as any other."""

    def __init__(self, size: int, seed: int) -> None:
        self.kept: list[Kept] = []
        self._size, self._offered = size, 0
        self._rng = random.Random(seed)

    def offer(self, item: Kept) -> None:
        self._offered += 1
        if len(self.kept) < self._size:
            self.kept.append(item)
        elif (place := self._rng.randrange(self._offered)) < self._size:
            self.kept[place] = item
