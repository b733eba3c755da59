"""From anything a model writes to an FTS5 query that cannot fail."""

import re
from collections.abc import Iterable
from typing import Final

from agentrt_tools.titles import clean_title

# Words of questions that say nothing about the page that answers them.
_STOP_WORDS: Final = frozenset(
    "a an the and or of in on at by to from for with into as than then so if "  # noqa: SIM905 - a word list reads better as text
    "i he she it we you they his her its their them this that these those there "
    "who whom whose what which when where why how is are was were am be been being "
    "do does did have has had will would can could should may might must not no "
    "both same between other another also one name named called".split()
)
_WORD: Final = re.compile(r"[^\W_]+")

MAX_TERMS: Final = 64
"""Longer queries are cut: they cost time and find nothing more."""


def match_query(text: str) -> str | None:
    """Any of the words of `text`, stop-words only where there are no others; None without words.

    Each word is quoted, so nothing in it is read as FTS5 syntax.
    """
    words = _words(text)
    telling = [word for word in words if word not in _STOP_WORDS] or words
    return " OR ".join(f'"{word}"' for word in telling[:MAX_TERMS]) or None


def without_words(text: str, others: Iterable[str]) -> str:
    """The words of `text` that are in none of the `others`; `text` itself where no telling word would be left."""
    known = {word for other in others for word in _words(other)}
    left = [word for word in _words(text) if word not in known]
    return " ".join(left) if any(word not in _STOP_WORDS for word in left) else text


def _words(text: str) -> list[str]:
    """Each once, in lower case."""
    return list(dict.fromkeys(_WORD.findall(clean_title(text).casefold())))
