"""From anything a model writes to an FTS5 query that cannot fail."""

import re
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
MAX_TERMS: Final = 64
"""Longer queries are cut: they cost time and find nothing more."""


def match_query(text: str) -> str | None:
    """Any of the words of `text`, stop-words only where there are no others; None without words.

    Each word is quoted, so nothing in it is read as FTS5 syntax.
    """
    words = list(dict.fromkeys(re.findall(r"[^\W_]+", clean_title(text).casefold())))
    telling = [word for word in words if word not in _STOP_WORDS] or words
    return " OR ".join(f'"{word}"' for word in telling[:MAX_TERMS]) or None
