"""Short verbatim quotations from a page, and wrong answers taken from pages. Pure text."""

import random
import re
from collections.abc import Iterable
from typing import Final

_WORD: Final = re.compile(r"\S+")
_NAMES: Final = re.compile("[A-Z][\\w'\u2019-]+(?: [A-Z][\\w'\u2019-]+)*")
_NUMBERS: Final = re.compile(r"\b\d[\d,.]*\d\b")
_NO_NAMES: Final = frozenset(
    {"The", "It", "He", "She", "In", "His", "Her", "They", "This", "Its", "Links", "Their", "At", "On", "An", "As"}
)


def quote(sentence: str, keep: str, max_words: int) -> str:
    """At most `max_words` words of `sentence`, with the first occurrence of `keep` in them if it is there.

    The words before `keep` come first: they say what it is. From the start of the sentence where that fits, so that
    a quotation starts like a clause; without a comma or full stop at its end.
    """
    words = [match.span() for match in _WORD.finditer(sentence)]
    if not words:
        return ""
    at = sentence.find(keep) if keep else 0
    begin, end = (at, at + len(keep)) if at >= 0 else (0, 0)
    last = next((i for i, (_, stop) in enumerate(words) if stop >= end), len(words) - 1)
    first = next((i for i, (_, stop) in enumerate(words) if stop > begin), 0)
    start = min(max(0, last + 1 - max_words), first)
    stop = max(last + 1, min(len(words), start + max_words) if start == 0 and last + 1 < 4 else last + 1)
    return sentence[words[start][0] : words[stop - 1][1]].rstrip(" .,;:").replace('"', "'")


def wrong_answer(answer: str, question: str, texts: Iterable[str], rng: random.Random) -> str | None:
    """A span of `texts` that looks like `answer` (a number for a number, a name for a name) and is not part of it.

    Names of the question are left out; None where no other span is found. "yes" and "no" swap.
    """
    polar = {"yes": "no", "no": "yes"}
    if answer.lower() in polar:
        return polar[answer.lower()]
    pattern = _NUMBERS if answer[-1:].isdigit() else _NAMES
    barred = f"{answer} {question}".lower()
    found = {
        span: None
        for text in texts
        for span in pattern.findall(text)
        if span not in _NO_NAMES and span.lower() not in barred and answer.lower() not in span.lower()
    }
    return rng.choice(list(found)) if found else None
