"""The teacher of the science team: what each role writes on the way to the right letter, from lecture and solution.

Besides the observations it knows which page is the lecture, if one is, and why the answer is right.
"""

import random
import re
from typing import Final

from agentrt.training.quotes import quote
from agentrt.training.sources import LessonQuestion
from agentrt.training.teacher import Detour, Move, PolicyStuckError, Senses, Teacher

_LONGEST_QUOTE: Final = 14  # words of a lecture
_LONGEST_REASON: Final = 24  # words of a solution
_SHORTEST: Final = 4

_SEARCH: Final = ("I look for a lesson on this.", "First I search the lessons.", "I search for a lesson first.")
_READ: Final = ("A lesson may help. I read {title}.", "The list names a lesson. I read {title}.")
_READ_ON: Final = "{page} does not help. I read {title}."
_ANSWER: Final = "The answer is {letter}."
_SAYS: Final = '{page} says "{quote}".'
_NONE_LISTED: Final = "No lesson helps."
_NONE_READ: Final = "{page} does not help."
_THAT_IS: Final = 'That is "{choice}".'
_RETRY: Final = "That was wrong."
_SO: Final = "So "
"""Left out where a reason begins with it: the verdict behind it begins so too."""
_RIGHT: Final = "So {letter} is right."
_WRONG: Final = "So {letter} is wrong."

_SENTENCE: Final = re.compile(r"(?<=[.!?]) ")
_WORD: Final = re.compile(r"[a-z]{3,}")


class LessonPolicy(Teacher):
    """Writes one episode of a multiple-choice question: search the lessons, read the lecture if it is listed, answer.

    Where no page is the lecture, or the search does not list it, the solution is all that speaks for the answer.
    """

    def __init__(self, question: LessonQuestion, detour: Detour, senses: Senses, *, seed: int = 0) -> None:
        gold = () if question.page is None else (question.page,)
        super().__init__(gold, senses, random.Random(f"{seed}:{question.id}:{detour}"))
        self._question = question
        self._detour: Detour = detour

    def _next_move(self) -> Move:
        if not self._observed:
            return Move(self._rng.choice(_SEARCH), "Search", self._query(self._question.stem))
        if self._answered:
            return self._finish(self._question.letter, opening=_RETRY)
        unread = [title for title in self._gold if title in self._seen and title not in self._read_titles]
        if self._detour == "middle" or (self._detour == "last" and not unread):
            self._detour = "none"
            if (stray := self._stray()) is not None:
                return Move(self._reading(stray), "Retrieve", stray, taught=False)
        if unread:
            return Move(self._reading(unread[0]), "Retrieve", unread[0])
        if self._detour == "wrong":
            self._detour = "none"
            wrong = self._rng.choice([letter for letter in self._question.letters if letter != self._question.letter])
            return self._finish(wrong)._replace(taught=False)
        return self._finish(self._question.letter)

    def _right(self) -> bool:
        return self._answered[-1] == self._question.letter

    def _judgement(self) -> str:
        template = _RIGHT if self._right() else _WRONG
        return self._fitting(["{reason}", template.format(letter=self._answered[-1])])

    def _reading(self, title: str) -> str:
        if self._pages:
            return _READ_ON.format(page=self._pages[-1].title, title=title)
        return self._rng.choice(_READ).format(title=title)

    def _finish(self, letter: str, opening: str = "") -> Move:
        """A thought that ends with the answer; for a wrong letter it gives no reason."""
        right = letter == self._question.letter
        parts = [opening] if opening else [self._source()]
        if right:
            parts.append("{reason}")
        choice = self._question.choice(letter)
        if not right or choice.lower() not in self._reason(_LONGEST_REASON).lower():
            parts.append(_THAT_IS.format(choice=quote(choice, "", 8)))
        return Move(self._fitting([*parts, _ANSWER.format(letter=letter)]), "Finish", letter)

    def _source(self) -> str:
        """What was read, or that nothing was."""
        if not self._pages:
            return _NONE_LISTED
        gold = next((page.title for page in self._pages if page.title in self._gold), None)
        return (
            _NONE_READ.format(page=self._pages[-1].title) if gold is None else _SAYS.format(page=gold, quote="{quote}")
        )

    def _fitting(self, parts: list[str]) -> str:
        """The parts as one thought, with the longest quotation and reason that fit; the quotation is cut first."""
        text = " ".join(part for part in parts if part)
        for reason in range(_LONGEST_REASON, _SHORTEST - 1, -1):
            for words in range(_LONGEST_QUOTE, _SHORTEST - 1, -1):
                thought = text.replace("{quote}", self._quote(words)).replace("{reason}", self._reason(reason))
                if self._fits("thought", thought):
                    return thought
        raise PolicyStuckError("its reason and page are too long for a thought")

    def _quote(self, max_words: int) -> str:
        """The sentence of the lecture, as it was shown, that has most words in common with solution and choice."""
        wanted = set(_WORD.findall(f"{self._question.solution} {self._question.choice(self._question.letter)}".lower()))
        shown = next((page.shown for page in self._pages if page.title in self._gold), "")
        sentences = [sentence for sentence in _SENTENCE.split(shown) if sentence.strip()]
        best = max(sentences, key=lambda sentence: len(wanted & set(_WORD.findall(sentence.lower()))), default="")
        return quote(best, "", max_words)

    def _reason(self, max_words: int) -> str:
        """The sentence of the solution that names the right choice, else the last, as a sentence."""
        sentences = [sentence for sentence in _SENTENCE.split(self._question.solution) if sentence.strip()]
        choice = self._question.choice(self._question.letter).lower().rstrip(".!?")
        named = [sentence for sentence in sentences if choice in sentence.lower()]
        best = (named or sentences)[-1].removeprefix(_SO)
        return f"{quote(best[:1].upper() + best[1:], '', max_words)}."
