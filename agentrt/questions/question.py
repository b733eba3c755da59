"""A benchmark question as every part of the evaluation sees it. Knows nothing of files."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, Final, NamedTuple

LETTERS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

_OPTIONS: Final = "Options: "


class SupportingFact(NamedTuple):
    """A sentence that is needed for the answer: `sent_id` counts the article's sentences from 0."""

    title: str
    sent_id: int


class Lesson(NamedTuple):
    """What teaches the answer of a multiple-choice question: the rule, and why it gives this answer."""

    lecture: str
    solution: str


@dataclass(frozen=True)
class Question:
    """One question.

    group: the level (HotpotQA: easy, medium, hard) or the grade band (ScienceQA: 1-4, 5-8, 9-12); "" if not told.
    kind: "bridge" or "comparison" (HotpotQA), "choice" (ScienceQA); "" if not told.
    text: what an agent is asked; for a multiple-choice question with its context and lettered options.
    answer: the gold answer; for a multiple-choice question the text of the right choice.
    letter: the gold letter of a multiple-choice question, else "".
    titles: the titles of the articles that come with the question.
    stem: the text of a multiple-choice question without context and options.
    lesson: for training only; None where the row tells no solution.
    """

    id: str
    benchmark: str
    split: str
    group: str
    kind: str
    text: str
    answer: str
    choices: tuple[str, ...] = ()
    hint: str = ""
    letter: str = ""
    supporting_facts: tuple[SupportingFact, ...] = ()
    titles: tuple[str, ...] = ()
    stem: str = ""
    lesson: Lesson | None = None

    def for_evaluation(self) -> dict[str, Any]:
        """Its values by name, without what only training reads."""
        return {name: value for name, value in asdict(self).items() if name not in ("stem", "lesson")}


def pose_choice(question: str, choices: Sequence[str], hint: str = "", caption: str = "") -> str:
    """A multiple-choice question as posed: question, context, options, each on lines of its own.

    The labels and their order are those of AutoAct's ScienceQA files (Qiao et al., 2024). `caption` stands in for
    an image and joins the context.
    """
    context = " ".join(part for part in (hint.strip(), f"Image: {caption.strip()}" if caption else "") if part)
    options = " ".join(f"({letter}) {choice}" for letter, choice in zip(LETTERS, choices, strict=False))
    return "\n".join([question, *([f"Context: {context}"] if context else []), f"{_OPTIONS}{options}"])


def posed_letters(text: str) -> list[str]:
    """The letters of the options that a posed question lists, on one line or more; [] if it lists none."""
    letters: list[str] = []
    _, found, rest = text.rpartition(f"{_OPTIONS}({LETTERS[0]}) ")
    for letter, following in pairwise(LETTERS):
        if not found:
            break
        letters.append(letter)
        _, found, rest = rest.partition(f" ({following}) ")
    return letters
