"""A benchmark question as every part of the evaluation sees it. Knows nothing of files."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

LETTERS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


class SupportingFact(NamedTuple):
    """A sentence that is needed for the answer: `sent_id` counts the article's sentences from 0."""

    title: str
    sent_id: int


@dataclass(frozen=True)
class Question:
    """One question.

    group: the level (HotpotQA: easy, medium, hard) or the grade band (ScienceQA: 1-4, 5-8, 9-12); "" if not told.
    kind: "bridge" or "comparison" (HotpotQA), "choice" (ScienceQA); "" if not told.
    text: what an agent is asked; for a multiple-choice question with its context and lettered options.
    answer: the gold answer; for a multiple-choice question the text of the right choice.
    letter: the gold letter of a multiple-choice question, else "".
    titles: the titles of the articles that come with the question.
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


def pose_choice(question: str, choices: Sequence[str], hint: str = "", caption: str = "") -> str:
    """A multiple-choice question as posed: question, context, options, each on lines of its own.

    The labels and their order are those of AutoAct's ScienceQA files (Qiao et al., 2024). `caption` stands in for
    an image and joins the context.
    """
    context = " ".join(part for part in (hint.strip(), f"Image: {caption.strip()}" if caption else "") if part)
    options = " ".join(f"({letter}) {choice}" for letter, choice in zip(LETTERS, choices, strict=False))
    return "\n".join([question, *([f"Context: {context}"] if context else []), f"Options: {options}"])
