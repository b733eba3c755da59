"""The teacher of the search team: what each role writes on the way to a known answer, field by field.

Besides the observations it knows the gold pages and the answer.
"""

import random
import re
from typing import Final

from agentrt.training.quotes import quote, wrong_answer
from agentrt.training.sources import Fact, GoldQuestion, find_span
from agentrt.training.teacher import Detour, Move, PolicyStuckError, Senses, Teacher
from agentrt_tools.titles import without_qualifier

_LONGEST_QUOTE: Final = 13  # words; 48 tokens of thought hold about as much, with a title and an answer
_SHORT_QUOTE: Final = 8  # words, where a quotation shows nothing in particular, or two must fit
_LINKS: Final = " Links: "

_SEARCH: Final = ("First I search with the question.", "I start with a search for the question.", "I search first.")
_READ_FIRST: Final = ("The list names a page of the question. I read {title}.", "I start with the page {title}.")
_READ_NEXT: Final = ('{page} says "{quote}". I read {title}.', '{page} says "{quote}", so next I read {title}.')
_SEARCH_NEXT: Final = '{page} says "{quote}". I search for {title}.'
_NO_HELP: Final = ("{page} does not help. I read {title}.", "This page is no help, so I read {title}.")
_FINISH: Final = "The answer is {answer}."
_RETRY: Final = "That was wrong. The answer is {answer}."
_RIGHT: Final = '{page} says "{quote}", so {answer} is right.'
_WRONG: Final = '{page} says "{quote}", so {answer} is wrong.'


class GoldPolicy(Teacher):
    """Writes one episode of a question with supporting facts."""

    def __init__(self, question: GoldQuestion, detour: Detour, senses: Senses, *, seed: int = 0) -> None:
        super().__init__(question.titles, senses, random.Random(f"{seed}:{question.id}:{detour}"))
        self._question = question
        self._detour: Detour = detour
        self._searched: set[str] = set()

    # -- plan ------------------------------------------------------------------------------------------------------

    def _next_move(self) -> Move:
        if not self._observed:
            return Move(self._rng.choice(_SEARCH), "Search", self._query(self._question.question))
        if self._answered:
            return self._finish(_RETRY, self._answer())
        unread = [title for title in self._gold if title not in self._read_titles]
        if unread:
            if self._detour == "middle" and self._pages and (aside := self._aside()):
                self._detour = "none"
                return aside
            return self._step_to(unread)
        if self._detour == "last" and (aside := self._aside()):
            self._detour = "none"
            return aside
        answer = self._answer()
        if self._detour == "wrong":
            self._detour = "none"
            wrong = wrong_answer(answer, self._question.question, self._observed, self._rng)
            if wrong is not None:
                return self._finish(_FINISH, wrong)._replace(taught=False)
        return self._finish(_FINISH, answer)

    def _step_to(self, unread: list[str]) -> Move:
        """Read the gold page that can be reached; the one that holds the answer of a bridge comes last."""
        reachable = [title for title in unread if title in self._seen]
        if not reachable:
            return self._search_for(unread)
        title = min(reachable, key=lambda t: (self._holds_answer(t), self._rank(t)))
        if not self._pages or (self._move is not None and self._move.action == "Search"):
            return Move(self._rng.choice(_READ_FIRST).format(title=title), "Retrieve", title)
        if self._pages[-1].title not in self._gold:
            template = self._rng.choice(_NO_HELP)
            return Move(template.format(page=self._pages[-1].title, title=title), "Retrieve", title)
        template = self._rng.choice(_READ_NEXT)
        return Move(self._quoting(template, self._pages[-1].title, keep=title, title=title), "Retrieve", title)

    def _search_for(self, unread: list[str]) -> Move:
        """A second search, for a page whose name is on the pages read or in the question, but in no list."""
        text = " ".join([self._question.question, *self._observed])
        for title in unread:
            name = without_qualifier(title)
            if name in text and name not in self._searched and self._pages:
                self._searched.add(name)
                thought = self._quoting(_SEARCH_NEXT, self._pages[-1].title, keep=name, title=name)
                return Move(thought, "Search", name)
        raise PolicyStuckError(f"its page is neither listed nor mentioned: {unread[0]!r}")

    def _aside(self) -> Move | None:
        """Read a page that is no gold page: a mistake, which the next thought must get over."""
        title = self._stray()
        if title is None:
            return None
        thought = self._quoting(_READ_NEXT[0], self._pages[-1].title, keep=title, title=title)
        return Move(thought, "Retrieve", title, taught=False)

    def _finish(self, template: str, answer: str) -> Move:
        """No quotation comes before an answer: one that has begun in the wrong place would take the answer along."""
        return Move(template.format(answer=answer), "Finish", answer)

    # -- reflect ---------------------------------------------------------------------------------------------------

    def _right(self) -> bool:
        return self._answered[-1] == self._answer()

    def _judgement(self) -> str:
        template = _RIGHT if self._right() else _WRONG
        answer = self._answer()
        keep = "" if self._question.polar else answer
        return self._quoting(template, self._answer_fact(answer).title, keep=keep, answer=self._answered[-1])

    # -- evidence --------------------------------------------------------------------------------------------------

    def _answer(self) -> str:
        """The gold answer as an observation spells it. Raises PolicyStuckError if none shows it."""
        if self._question.polar:
            return self._question.answer.lower()
        gold = [page.shown for page in self._pages if page.title in self._gold]
        for text in [*reversed(gold), *self._observed]:
            if span := find_span(text, self._question.answer):
                return span
        raise PolicyStuckError("its answer was clipped away from the pages as shown")

    def _holds_answer(self, title: str) -> bool:
        if self._question.polar or self._question.kind == "comparison":
            return False
        return any(find_span(f.sentence, self._question.answer) for f in self._question.facts if f.title == title)

    def _rank(self, title: str) -> tuple[int, int]:
        listed = self._listed.index(title) if title in self._listed else len(self._listed)
        return listed, self._gold.index(title)

    def _answer_fact(self, answer: str) -> Fact:
        """The sentence that best supports `answer` among the gold pages read: one that holds it, else the last."""
        shown = [f for f in self._question.facts if f.title in self._read_titles and f.sentence in self._text(f.title)]
        holding = [fact for fact in shown if find_span(fact.sentence, answer)]
        if holding:
            return holding[-1]
        for page in reversed(self._pages):
            if find_span(page.shown, answer):
                return Fact(page.title, self._sentence(page.title, answer))
        last = [page.title for page in self._pages if page.title in self._gold][-1]
        return next((fact for fact in reversed(shown) if fact.title == last), Fact(last, self._sentence(last, "")))

    def _text(self, title: str) -> str:
        return next((page.shown.split(_LINKS)[0] for page in self._pages if page.title == title), "")

    def _sentence(self, title: str, keep: str) -> str:
        """The part of the page that is quoted for `keep`: a supporting sentence with it, another with it, any."""
        text = self._text(title)
        facts = [fact.sentence for fact in self._question.facts if fact.title == title and fact.sentence in text]
        pieces = [*facts, *re.split(r"(?<=[.!?]) ", text)]
        name = without_qualifier(keep)
        return next((piece for piece in pieces if name and name in piece), pieces[0])

    def _quoting(self, template: str, page: str, *, keep: str, **values: str) -> str:
        """`template` with the longest quotation from `page` that fits."""
        sentence, name = self._sentence(page, keep), without_qualifier(keep)
        for words in range(_LONGEST_QUOTE if name and name in sentence else _SHORT_QUOTE, 2, -1):
            thought = template.format(page=page, quote=quote(sentence, name, words), **values)
            if self._fits("thought", thought):
                return thought
        raise PolicyStuckError("its titles are too long for a thought")
