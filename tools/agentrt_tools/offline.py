"""Search, page and lookup over an offline corpus. They keep nothing: what an episode has read is in its state."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Annotated, Final

from agentrt_tools.base import Json, ToolResult
from agentrt_tools.corpus import OfflineCorpus
from agentrt_tools.lookup import look_up
from agentrt_tools.options import AtLeast
from agentrt_tools.query import without_words
from agentrt_tools.state import opened, titles_read
from agentrt_tools.text import one_line, shorten
from agentrt_tools.titles import echo

LINKS: Final = " Links: "
"""What comes before the list of links at the end of a page; see `clip(keep_from=...)`."""


class OfflineSearch:
    """`[1] Title: snippet [2] Title: snippet`: the `k` best articles with the start of their first sentence."""

    name: Final = "offline.search"

    def __init__(
        self,
        corpus: OfflineCorpus,
        *,
        k: Annotated[int, AtLeast(1)] = 4,
        snippet_chars: Annotated[int, AtLeast(0)] = 160,
    ) -> None:
        self._corpus = corpus
        self._k = k
        self._snippet_chars = snippet_chars

    def __call__(self, argument: str, state: Mapping[str, Json], *, question: str = "") -> ToolResult:
        articles = self._corpus.search(argument, self._k)
        facts: dict[str, Json] = {"query": argument, "results": [article.title for article in articles]}
        if not articles:
            return ToolResult(f"No results for [{echo(argument)}].", facts, dict(state), miss=True)
        parts, titles = [], []
        for rank, article in enumerate(articles, 1):
            snippet = shorten(article.sentences[0], self._snippet_chars)
            parts.append(f"[{rank}] {article.title}: {snippet}" if snippet else f"[{rank}] {article.title}")
            titles += [article.title, *self._corpus.mentions(snippet)]
        return ToolResult(" ".join(parts), facts, dict(state), _unique(titles))


class OfflinePage:
    """The text of a page and, with `links`, as many titles that it mentions, ranked against the question's other words.

    Titles read before are no links. Where there is no such page: `similar` titles, and no page is open.
    """

    name: Final = "offline.page"

    def __init__(
        self,
        corpus: OfflineCorpus,
        *,
        links: Annotated[int, AtLeast(0)] = 0,
        similar: Annotated[int, AtLeast(0)] = 5,
    ) -> None:
        self._corpus = corpus
        self._links = links
        self._similar = similar

    def __call__(self, argument: str, state: Mapping[str, Json], *, question: str = "") -> ToolResult:
        article = self._corpus.article(argument)
        if article is None:
            return self._missing(argument, state)
        mentioned = [title for title in self._corpus.mentions(article.text) if title != article.title]
        read = titles_read(state)
        unread = [title for title in mentioned if title not in read]
        # what the question says of pages already read tells nothing of the next one
        asked = without_words(question, [article.title, *read])
        links = self._corpus.rank(unread, asked)[: self._links] if self._links else []
        text = article.text + (LINKS + "; ".join(links) if links else "")
        facts: dict[str, Json] = {"page": article.title, "links": list(links), "mentioned": list(mentioned)}
        return ToolResult(text, facts, opened(state, article.title), _unique([*mentioned, *links]))

    def _missing(self, argument: str, state: Mapping[str, Json]) -> ToolResult:
        similar = self._corpus.similar(argument, self._similar)
        text = f"Could not find [{echo(argument)}]." + (f" Similar: [{'; '.join(similar)}]" if similar else "")
        facts: dict[str, Json] = {"page": None, "asked": argument, "similar": list(similar)}
        return ToolResult(text, facts, opened(state, None), tuple(similar), miss=True)


class OfflineLookup:
    """`(Result 1 / 3) sentence`: the next sentence of the open page that holds the keyword, in any case.

    Asking again gives the next one; another keyword, or opening a page, starts from the first.
    """

    name: Final = "offline.lookup"

    def __init__(self, corpus: OfflineCorpus) -> None:
        self._corpus = corpus

    def __call__(self, argument: str, state: Mapping[str, Json], *, question: str = "") -> ToolResult:
        page = state.get("page")
        article = self._corpus.article(page) if isinstance(page, str) else None
        sentences = None if article is None else [one_line(sentence) for sentence in article.sentences]
        result = look_up(sentences, argument, state)
        if article is None or result.miss:
            return result
        shown = result.text.partition(") ")[2]  # without "(Result 1 / 3)"
        titles = [title for title in self._corpus.mentions(shown) if title != article.title]
        return replace(result, titles=tuple(titles))


def _unique(titles: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(titles))
