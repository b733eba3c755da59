"""Serper's answer -> what it says -> the text of an observation. Pure; every block and every field may be missing.

`react`:    Answer: 42. About Apple (Technology company): A firm. CEO: Tim Cook. [1] Title: snippet [2] Title: snippet
`autoact`:  the same pieces and snippets without labels or numbers, one right behind the other, as AutoAct's data has it
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from agentrt_tools.options import Style
from agentrt_tools.text import one_line
from agentrt_tools.titles import echo

AUTOACT_NOTHING: Final = "Bing search error"
_WIKIPEDIA: Final = " - Wikipedia"


class Hit(NamedTuple):
    title: str
    link: str
    snippet: str


class SearchPage(NamedTuple):
    """What a search found; each text is one line, "" where Serper has none."""

    answer: str = ""
    knowledge: str = ""
    results: tuple[Hit, ...] = ()

    @property
    def empty(self) -> bool:
        return not (self.answer or self.knowledge or self.results)

    def first(self, k: int) -> "SearchPage":
        return self._replace(results=self.results[:k])

    def passages(self) -> list[str]:
        """The texts by themselves, for a lookup and for `autoact`."""
        return [text for text in (self.answer, self.knowledge, *(hit.snippet for hit in self.results)) if text]

    def titles(self) -> tuple[str, ...]:
        """Names of the Wikipedia pages among the results."""
        named = (hit.title for hit in self.results if ".wikipedia.org/wiki/" in hit.link)
        return tuple(dict.fromkeys(title.removesuffix(_WIKIPEDIA) for title in named if title))


def read_search(body: Mapping[str, Any]) -> SearchPage:
    """Never raises: what is missing, null or of another type is left out, and so is a result without any text."""
    hits = (
        Hit(_text(row.get("title")), _text(row.get("link")), _text(row.get("snippet")))
        for row in _list(body.get("organic"))
        if isinstance(row, dict)
    )
    results = tuple(hit for hit in hits if hit.title or hit.snippet)
    return SearchPage(_answer(_dict(body.get("answerBox"))), _knowledge(_dict(body.get("knowledgeGraph"))), results)


def render_search(page: SearchPage, query: str, style: Style) -> str:
    if style == "autoact":
        return "".join(page.passages()) or AUTOACT_NOTHING
    if page.empty:
        return f"No results for [{echo(query)}]."
    parts = [f"Answer: {page.answer}"] if page.answer else []
    parts += [f"About {page.knowledge}"] if page.knowledge else []
    for rank, hit in enumerate(page.results, 1):
        named = ": ".join(part for part in (hit.title.removesuffix(_WIKIPEDIA), hit.snippet) if part)
        parts.append(f"[{rank}] {named}")
    return " ".join(parts)


def _answer(box: Mapping[str, Any]) -> str:
    words = _list(box.get("snippetHighlighted"))
    return _text(box.get("answer")) or _text(box.get("snippet")) or " ".join(filter(None, map(_text, words)))


def _knowledge(graph: Mapping[str, Any]) -> str:
    """`Title (type): description. Name: value.`; nothing without a title, since nothing says what it is about."""
    title, kind = _text(graph.get("title")), _text(graph.get("type"))
    if not title:
        return ""
    head = f"{title} ({kind})" if kind else title
    told = [_sentence(text) for text in (_text(graph.get("description")), *_attributes(graph)) if text]
    return f"{head}: {' '.join(told)}" if told else f"{head}."


def _attributes(graph: Mapping[str, Any]) -> Iterator[str]:
    for name, value in _dict(graph.get("attributes")).items():
        if text := _text(value):
            yield f"{name}: {text}"


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _text(value: Any) -> str:
    """A text or a number as one line; "" for anything else."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return ""
    return one_line(str(value))


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
