"""Which titles a text mentions: word by word, the longest title first. Knows no database."""

import re
from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from agentrt_tools.titles import without_qualifier

_WORD: Final = re.compile(r"[^\W_]+|[^\w\s]")
_SENTENCE_ENDS: Final = frozenset(".!?")


class MentionIndex:
    """All titles by their words, case kept. Built once, then read by any number of threads.

    A title is mentioned by its own words or by those before its qualifier ("Jaws" for "Jaws (film)"), since
    running text leaves the qualifier out. Words before a qualifier must hold a letter: "1979 (song)" is not
    mentioned by a year. One word before a qualifier is a name only where it stands alone and its capital is no
    sentence's: "United (album)" is mentioned neither by the United States nor by "United they stood".
    """

    def __init__(self, titles: Iterable[str]) -> None:
        self._titles: defaultdict[tuple[str, ...], list[str]] = defaultdict(list)
        qualified: list[tuple[str, str]] = []
        for title in titles:
            self._titles[_words(title)].append(title)
            name = without_qualifier(title)
            if name != title and any(char.isalpha() for char in name):
                qualified.append((name, title))
        self._weak = {_words(name)[0] for name, _ in qualified if len(_words(name)) == 1} - {
            words[0] for words in self._titles if len(words) == 1
        }
        for name, title in qualified:  # after all exact titles, so that those come first
            self._titles[_words(name)].append(title)
        self._titles.pop((), None)
        lengths: defaultdict[str, set[int]] = defaultdict(set)
        for words in self._titles:
            lengths[words[0]].add(len(words))
        self._lengths = {word: sorted(sizes, reverse=True) for word, sizes in lengths.items()}

    def find(self, text: str) -> list[str]:
        """Titles that `text` mentions, in order of their first mention, each once."""
        words = _words(text)
        found: dict[str, None] = {}
        at = 0
        while at < len(words):
            for length in self._lengths.get(words[at], ()):
                titles = self._titles.get(words[at : at + length])
                if titles and not (length == 1 and words[at] in self._weak and _inside_a_name(words, at)):
                    found.update(dict.fromkeys(titles))
                    at += length
                    break
            else:
                at += 1
        return list(found)


def _inside_a_name(words: tuple[str, ...], at: int) -> bool:
    """Whether the word is part of a longer name, as far as capitals tell, or owes its own to a sentence's start."""
    before = words[at - 1] if at else "."
    after = words[at + 1] if at + 1 < len(words) else "."
    return before in _SENTENCE_ENDS or before[0].isupper() or after[0].isupper()


def _words(text: str) -> tuple[str, ...]:
    return tuple(_WORD.findall(text))
