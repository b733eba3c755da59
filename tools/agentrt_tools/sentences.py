"""Split running English text into sentences, by rule; knows abbreviations, acronyms and initials."""

import re
from typing import Final

# Before a name: never the end of a sentence.
_TITLES: Final = frozenset(
    "dr mr mrs ms messrs prof gen col lt sgt capt cpl pvt maj cmdr adm rev hon fr gov sen rep pres supt "  # noqa: SIM905 - a word list reads better as text
    "vs cf viz e.g i.e approx".split()
)
# Before a number: the end of a sentence unless one follows.
_COUNTED: Final = frozenset(
    "no nos vol vols pp fig figs ed eds op ca est".split()  # noqa: SIM905 - a word list reads better as text
)
# These end a sentence where the next word is one that usually starts one; so do initials and acronyms.
_EITHER: Final = frozenset(
    "jr sr inc ltd co corp llc esq etc al bros dept univ st mt ft ph.d a.m p.m "  # noqa: SIM905 - a word list reads better as text
    "jan feb mar apr jun jul aug sept sep oct nov dec".split()
)
_STARTERS: Final = frozenset(
    "the a an he she it they we i you his her hers its their this that these those there in on at by from for to "  # noqa: SIM905 - a word list reads better as text
    "of with as after before during since when while although however but and or both many most some all one two "
    "who what which where how if once soon later today".split()
)

_CLOSING: Final = r"""["'\u201d\u2019)\]]"""
_OPENING: Final = r"""["'\u201c\u2018(\[]"""
_CANDIDATE: Final = re.compile(rf"[.!?…]+{_CLOSING}*(?=\s+{_OPENING}*[^\W_a-z])")
_LAST_WORD: Final = re.compile(r"[^\W_]+(?:[.'\u2019][^\W_]+)*$")
_NEXT_WORD: Final = re.compile(rf"\s+{_OPENING}*([^\W_]+)(\.?)")


def split_sentences(text: str) -> list[str]:
    """Sentences of `text`; all but the first keep the blanks before them, so that they join to `text`."""
    sentences: list[str] = []
    start = 0
    for match in _CANDIDATE.finditer(text):
        if _ends_sentence(text, start, match):
            sentences.append(text[start : match.end()])
            start = match.end()
    if text[start:].strip() or not sentences:
        sentences.append(text[start:])
    else:
        sentences[-1] += text[start:]
    return [sentence for sentence in sentences if sentence]


def _ends_sentence(text: str, start: int, match: re.Match[str]) -> bool:
    if not match.group().startswith(".") or match.group().startswith(".."):
        return True
    word_match = _LAST_WORD.search(text, start, match.start())
    if word_match is None:
        return True
    word = word_match.group().casefold()
    following = _NEXT_WORD.match(text, match.end())
    if word in _TITLES or following is None:
        return False
    if word in _COUNTED:
        return not following[1][0].isdigit()
    is_acronym = all(len(part) == 1 for part in word.split(".")) and not word.isdigit()
    if is_acronym or word in _EITHER:
        # "A" followed by a dot is an initial itself: "J. A. Smith"
        return following[1].casefold() in _STARTERS and not following[2]
    return True
