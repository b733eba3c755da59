"""Search, page and lookup on Wikipedia. Only pages are kept, as a cache: what an episode has read is in its state."""

import os
from collections.abc import Mapping
from typing import Annotated, Final

from agentrt_tools.base import Json, ToolFailed, ToolResult
from agentrt_tools.lookup import look_up
from agentrt_tools.options import AtLeast, Matches, Style
from agentrt_tools.state import opened, passages_shown, searched
from agentrt_tools.titles import echo
from agentrt_tools.wiki_client import Ambiguous, WikiClient, WikiPage, shared_client
from agentrt_tools.wiki_text import AUTOACT_ERROR, page_passages, render_missing, render_page

Language = Annotated[str, Matches(r"[a-z]{2,12}(-[a-z]{2,12})*", "the language code of a Wikipedia, such as en or de")]

CONTACT: Final = "AGENTRT_CONTACT"
"""The environment's contact for the User-Agent, where the team file has none."""


class WikipediaSearch:
    """`[1] Title [2] Title`: the `k` best titles for some words."""

    name: Final = "wikipedia.search"

    def __init__(
        self,
        client: WikiClient | None = None,
        *,
        k: Annotated[int, AtLeast(1)] = 5,
        language: Language = "en",
        contact: str = "",
    ) -> None:
        self._client = client or _client(language, contact)
        self._k = k

    def __call__(self, argument: str, state: Mapping[str, Json], *, question: str = "") -> ToolResult:
        titles = self._client.search(argument, self._k)
        facts: dict[str, Json] = {"query": argument, "results": list(titles)}
        if not titles:
            return ToolResult(f"No results for [{echo(argument)}].", facts, dict(state), miss=True)
        text = " ".join(f"[{rank}] {title}" for rank, title in enumerate(titles, 1))
        return ToolResult(text, facts, searched(state, titles), tuple(titles))


class WikipediaPage:
    """The start of the page of exactly that title, redirects followed; else up to `similar` titles, and no page."""

    name: Final = "wikipedia.page"

    def __init__(
        self,
        client: WikiClient | None = None,
        *,
        style: Style = "react",
        sentences: Annotated[int, AtLeast(1)] = 5,
        similar: Annotated[int, AtLeast(0)] = 5,
        language: Language = "en",
        contact: str = "",
    ) -> None:
        self._client = client or _client(language, contact)
        self._style, self._sentences, self._similar = style, sentences, similar

    def __call__(self, argument: str, state: Mapping[str, Json], *, question: str = "") -> ToolResult:
        try:
            found = self._client.page(argument)
            if isinstance(found, WikiPage):
                text = render_page(found.content, self._style, self._sentences)
                return ToolResult(text, {"page": found.title}, opened(state, found.title))
            similar = self._similar_to(argument, found)
        except ToolFailed as failed:
            failed.told = AUTOACT_ERROR if self._style == "autoact" else ""
            raise
        text = render_missing(argument, similar, self._style)
        facts: dict[str, Json] = {
            "page": None,
            "asked": argument,
            "similar": list(similar),
            "ambiguous": isinstance(found, Ambiguous),
        }
        return ToolResult(text, facts, opened(state, None), tuple(similar), miss=True)

    def _similar_to(self, argument: str, found: Ambiguous | None) -> list[str]:
        """What a disambiguation lists, except in AutoAct's wording, which always lists what a search finds."""
        if isinstance(found, Ambiguous) and found.options and self._style == "react":
            return list(found.options[: self._similar])
        return self._client.search(argument, self._similar) if self._similar else []


class WikipediaLookup:
    """The next sentence (`autoact`: paragraph) of the open page that holds the keyword; without a page, the next text
    that the last search showed."""

    name: Final = "wikipedia.lookup"

    def __init__(
        self, client: WikiClient | None = None, *, style: Style = "react", language: Language = "en", contact: str = ""
    ) -> None:
        self._client = client or _client(language, contact)
        self._style = style

    def __call__(self, argument: str, state: Mapping[str, Json], *, question: str = "") -> ToolResult:
        title = state.get("page")
        page = self._client.page(title) if isinstance(title, str) else None
        if isinstance(page, WikiPage):
            return look_up(page_passages(page.content, self._style), argument, state, self._style)
        return look_up(passages_shown(state) or None, argument, state, self._style)


def _client(language: str, contact: str) -> WikiClient:
    return shared_client(language, contact or os.environ.get(CONTACT, ""))
