"""Scores a prediction: exact match and F1 as HotpotQA defines them, letters as letters for multiple choice.

Source: HotpotQA (Yang et al., 2018), its evaluation script. Two deliberate differences: an empty prediction is
always wrong, and a gold answer that normalisation would erase ("A", "The") is compared without normalisation.
Knows nothing of episodes or files.
"""

import re
import string
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from agentrt.questions.question import LETTERS, Question

_PUNCTUATION: Final = str.maketrans("", "", string.punctuation)
_ARTICLES: Final = re.compile(r"\b(?:a|an|the)\b")
_ALL_OR_NOTHING: Final = frozenset({"yes", "no", "noanswer"})
_BARE_LETTER: Final = re.compile(r"\(?([A-Za-z])\)?[.:]?")
_LETTER_AND_TEXT: Final = re.compile(r"(?:\(([A-Za-z])\)|([A-Za-z])[).:])\s.*", re.DOTALL)


class Score(NamedTuple):
    """correct: exact match, or the right letter; f1: in [0, 1], equal to `correct` for multiple choice."""

    correct: bool
    f1: float


WRONG: Final = Score(correct=False, f1=0.0)


class GuessBaseline(NamedTuple):
    """What always answering one letter scores: accuracy in [0, 1]."""

    letter: str
    accuracy: float


def score(question: Question, prediction: str | None, *, finished: bool = True) -> Score:
    """Scores one answer. None, an empty prediction and an episode that did not finish are wrong."""
    if not finished or prediction is None:
        return WRONG
    if question.choices:
        right = choice_letter(prediction, question.choices) == question.letter
        return Score(right, float(right))
    return score_text(prediction, question.answer)


def score_text(prediction: str, gold: str) -> Score:
    """Exact match and token F1 of two short texts after `normalise`."""
    if not prediction.strip():
        return WRONG
    if not normalise(gold):
        same = prediction.strip().lower() == gold.strip().lower()
        return Score(same, float(same))
    return Score(normalise(prediction) == normalise(gold), _f1(normalise(prediction), normalise(gold)))


def normalise(text: str) -> str:
    """Lower case, without ASCII punctuation, without a, an and the, single blanks; in this order."""
    bare = text.lower().translate(_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", bare).split())


def choice_letter(prediction: str, choices: Sequence[str]) -> str | None:
    """The letter that a prediction names, or None.

    Read are a letter ("B", "(b)", "B."), a letter before its text ("(B) mice", "B. mice"), or the text of exactly one
    choice as it stands, else but for case, blanks and a final full stop. "A bat" is text, not the letter A.
    """
    text = prediction.strip()
    letters = LETTERS[: len(choices)]
    if (bare := _BARE_LETTER.fullmatch(text)) and (letter := bare[1].upper()) in letters:
        return letter
    for read in (str.strip, _plain):  # two choices may differ in nothing but case
        same = [letter for letter, choice in zip(letters, choices, strict=True) if read(choice) == read(text)]
        if len(same) == 1:
            return same[0]
    if (led := _LETTER_AND_TEXT.fullmatch(text)) and (letter := (led[1] or led[2]).upper()) in letters:
        return letter
    return None


def guess_baseline(questions: Iterable[Question]) -> GuessBaseline | None:
    """The best that always guessing one letter would score; None without multiple-choice questions."""
    letters = Counter(question.letter for question in questions if question.choices)
    if not letters:
        return None
    letter, count = min(letters.items(), key=lambda item: (-item[1], item[0]))
    return GuessBaseline(letter, count / letters.total())


def _f1(prediction: str, gold: str) -> float:
    if prediction != gold and not _ALL_OR_NOTHING.isdisjoint((prediction, gold)):
        return 0.0
    predicted, expected = prediction.split(), gold.split()
    shared = (Counter(predicted) & Counter(expected)).total()
    if not shared:
        return 0.0
    precision, recall = shared / len(predicted), shared / len(expected)
    return 2 * precision * recall / (precision + recall)


def _plain(text: str) -> str:
    return " ".join(text.casefold().split()).removesuffix(".").rstrip()
