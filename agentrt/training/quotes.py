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
    """At most `max_words` words of `sentence`, with the first occurrence of `keep` among them if it is there.

    The words before `keep` say what it is, so a quotation ends with it, unless the sentence starts with it. No comma
    or full stop is left at the end, and quotation marks inside become single.
    """
    words = [match.span() for match in _WORD.finditer(sentence)]
    at = sentence.find(keep) if keep else 0
    if not words:
        return ""
    first = next((i for i, (_, stop) in enumerate(words) if stop > max(at, 0)), 0)
    last = next((i for i, (_, stop) in enumerate(words) if stop >= at + len(keep)), first) if at >= 0 else 0
    if first < 2:
        start, stop = 0, max(last + 1, max_words)
    else:
        start, stop = min(max(0, last + 1 - max_words), first), last + 1
    return sentence[words[start][0] : words[:stop][-1][1]].rstrip(" .,;:").replace('"', "'")


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
