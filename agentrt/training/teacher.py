"""What every teacher has: it writes an episode field by field, and notes what the tools have shown.

It sees what a model would see, the observations as they were shown. Knows no tokens beyond a length check, no engine
and no tools.
"""

import random
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from agentrt.config.flow import Emits

Detour = Literal["none", "middle", "last", "wrong"]
"""What goes wrong on purpose: nothing, a page that does not help before or after the gold pages, or a wrong answer."""

_RANKED: Final = re.compile(r"\[\d+\] ")


class PolicyStuckError(Exception):
    """The gold pages cannot be reached, or what must be said does not fit; the message says which."""


class Move(NamedTuple):
    """One step of the plan role: its thought, and the action that follows from it."""

    thought: str
    action: str
    argument: str
    taught: bool = True
    """False where the step is a mistake made on purpose: seen by the roles, learnt by none of them as plan's."""


@dataclass
class Page:
    title: str
    shown: str


@dataclass(frozen=True)
class Senses:
    """What a teacher may ask: `mentions` finds titles in a text, `fits` says whether a field is within its limit."""

    mentions: Callable[[str], Sequence[str]]
    fits: Callable[[Emits, str], bool]


class Teacher(ABC):
    """Writes one episode. `gold` are the titles that it ought to read; `rng` makes its choices."""

    def __init__(self, gold: Sequence[str], senses: Senses, rng: random.Random) -> None:
        self._gold = tuple(gold)
        self._mentions, self._fits = senses.mentions, senses.fits
        self._rng = rng
        self._move: Move | None = None
        self._pages: list[Page] = []
        self._seen: dict[str, None] = {}
        self._listed: list[str] = []
        self._observed: list[str] = []
        self._answered: list[str] = []
        self.taught: list[bool] = []
        """One entry per field written so far."""
        self.answer_waits = False
        """Whether the last answer has had no verdict yet."""

    def write(self, emits: Emits, observations: Sequence[str], *, judging: bool) -> str:
        """The next field. `observations` are all of the episode so far, as shown; `judging`: by the role that judges.

        Raises PolicyStuckError.
        """
        self._read(observations)
        if judging:
            if not self._answered:
                raise PolicyStuckError("its team judges before there is an answer")
            self.taught.append(True)
            if emits == "verdict":
                self.answer_waits = False
                return "right" if self._right() else "wrong"
            return self._judgement()
        if emits == "thought":
            self._move = self._next_move()
            self.taught.append(self._move.taught)
            return self._move.thought
        assert self._move is not None, "a step starts with a thought"
        self.taught.append(True)
        if emits == "action":
            return self._move.action
        if self._move.action == "Finish":
            self._answered.append(self._move.argument)
            self.answer_waits = True
        return self._move.argument

    @abstractmethod
    def _next_move(self) -> Move:
        """Plan's next step."""

    @abstractmethod
    def _right(self) -> bool:
        """Whether the last answer was."""

    @abstractmethod
    def _judgement(self) -> str:
        """Reflect's thought on the last answer."""

    def _read(self, observations: Sequence[str]) -> None:
        for text in observations[len(self._observed) :]:
            self._observed.append(text)
            # the runtime, too, lets a role read a title only if it stands in the text as shown
            self._seen |= dict.fromkeys(title for title in self._mentions(text) if title in text)
            assert self._move is not None
            if self._move.action == "Retrieve":
                self._pages.append(Page(self._move.argument, text))
            else:
                starts = [self._mentions(part)[:1] for part in _RANKED.split(text)[1:]]
                self._listed += [title for start in starts for title in start]

    def _query(self, text: str) -> str:
        """`text`, without the last words of one that is longer than an argument may be."""
        words = text.split()
        while len(words) > 1 and not self._fits("argument", " ".join(words)):
            words.pop()
        return " ".join(words)

    @property
    def _read_titles(self) -> set[str]:
        return {page.title for page in self._pages}

    def _stray(self) -> str | None:
        """A title that was seen, not read, and is no gold page."""
        others = [title for title in self._seen if title not in {*self._gold, *self._read_titles}]
        return self._rng.choice(others) if others else None
