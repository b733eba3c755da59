"""Search, page and lookup over an offline corpus. They keep nothing: what an episode has read is in its state.

State keys: `page` (title now open, or None), `read` (titles read, in order), `lookup_keyword` (or None) and
`lookup_next` (index of the result to show next).
"""

import textwrap
from collections.abc import Iterable, Mapping
from typing import Annotated, Final

from agentrt_tools.base import Json, ToolResult
from agentrt_tools.corpus import OfflineCorpus
from agentrt_tools.options import AtLeast
from agentrt_tools.text import one_line
from agentrt_tools.titles import clean_title, fold

LINKS: Final = " Links: "
"""What comes before the list of links at the end of a page; see `clip(keep_from=...)`."""

_ECHO_CHARS: Final = 100  # of the model's own argument in a message to it


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
            return ToolResult(f"No results for [{_echo(argument)}].", facts, dict(state), miss=True)
        parts, titles = [], []
        for rank, article in enumerate(articles, 1):
            snippet = _shorten(article.sentences[0], self._snippet_chars)
            parts.append(f"[{rank}] {article.title}: {snippet}" if snippet else f"[{rank}] {article.title}")
            titles += [article.title, *self._corpus.mentions(snippet)]
        return ToolResult(" ".join(parts), facts, dict(state), _unique(titles))


class OfflinePage:
    """The text of a page and, with `links`, as many titles that it mentions, ranked against the question.

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
        read = _titles_read(state)
        unread = [title for title in mentioned if title not in read]
        links = self._corpus.rank(unread, question)[: self._links] if self._links else []
        text = article.text + (LINKS + "; ".join(links) if links else "")
        facts: dict[str, Json] = {"page": article.title, "links": list(links), "mentioned": list(mentioned)}
        now = _page_state(state, article.title, read if article.title in read else [*read, article.title])
        return ToolResult(text, facts, now, _unique([*mentioned, *links]))

    def _missing(self, argument: str, state: Mapping[str, Json]) -> ToolResult:
        similar = self._corpus.similar(argument, self._similar)
        text = f"Could not find [{_echo(argument)}]." + (f" Similar: [{'; '.join(similar)}]" if similar else "")
        facts: dict[str, Json] = {"page": None, "asked": argument, "similar": list(similar)}
        return ToolResult(text, facts, _page_state(state, None, _titles_read(state)), tuple(similar), miss=True)


class OfflineLookup:
    """`(Result 1 / 3) sentence`: the next sentence of the open page that holds the keyword, in any case.

    Asking again gives the next one; another keyword, or opening a page, starts from the first.
    """

    name: Final = "offline.lookup"

    def __init__(self, corpus: OfflineCorpus) -> None:
        self._corpus = corpus

    def __call__(self, argument: str, state: Mapping[str, Json], *, question: str = "") -> ToolResult:
        page, keyword = state.get("page"), fold(argument)
        article = self._corpus.article(page) if isinstance(page, str) else None
        facts: dict[str, Json] = {"keyword": argument, "page": page, "result": 0, "results": 0}
        if article is None:
            text = "No page is open. Read a page before looking up a keyword in it."
            return ToolResult(text, facts, dict(state), miss=True)
        if not keyword:
            return ToolResult("Name a keyword to look up.", facts, dict(state), miss=True)
        hits = [one_line(sentence) for sentence in article.sentences if keyword in fold(sentence)]
        cursor = state.get("lookup_next") if state.get("lookup_keyword") == keyword else 0
        at = cursor if isinstance(cursor, int) else 0
        now: dict[str, Json] = {**state, "lookup_keyword": keyword, "lookup_next": min(at + 1, len(hits))}
        facts["results"] = len(hits)
        if at >= len(hits):
            text = "No more results." if hits else f"No results for [{_echo(argument)}] on this page."
            return ToolResult(text, facts, now, miss=True)
        facts["result"] = at + 1
        titles = [title for title in self._corpus.mentions(hits[at]) if title != article.title]
        return ToolResult(f"(Result {at + 1} / {len(hits)}) {hits[at]}", facts, now, tuple(titles))


def _page_state(state: Mapping[str, Json], page: str | None, read: list[str]) -> dict[str, Json]:
    return {**state, "page": page, "read": list(read), "lookup_keyword": None, "lookup_next": 0}


def _titles_read(state: Mapping[str, Json]) -> list[str]:
    read = state.get("read")
    return [title for title in read if isinstance(title, str)] if isinstance(read, list) else []


def _echo(argument: str) -> str:
    return _shorten(clean_title(argument), _ECHO_CHARS)


def _shorten(text: str, chars: int) -> str:
    """The words that fit `chars`, with "…" in place of the others; one word too long is cut."""
    line = one_line(text)
    if len(line) <= chars:
        return line
    return (textwrap.shorten(line, chars, placeholder=" …") if chars > 1 else "") or line[: max(chars - 1, 0)]


def _unique(titles: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(titles))
