"""A private copy of the `wikipedia` package, behind guards.

The package (1.4.0, of 2014) keeps its address, User-Agent, rate limit and caches in module globals, and asks with bare
`requests`: no timeout, one User-Agent for everybody, and whatever comes back is taken for JSON. So its module is run a
second time, under no name in `sys.modules`, and the globals of that copy are ours to replace. A host application that
imports `wikipedia` has the first copy, which nothing here touches.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from types import ModuleType
from typing import Any, Final

from agentrt_tools.base import ToolFailed

Fetch = Callable[[Mapping[str, Any]], dict[str, Any]]
"""Parameters of the MediaWiki API -> its answer. Raises ToolFailed."""

MOST_REQUESTS: Final = 6
"""Of one question: a page takes two, one behind a redirect three, a disambiguation three."""


class Door:
    """Stands in for `requests` in the copy: everything the package asks goes through `fetch`."""

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch
        self._asking = threading.local()

    @contextmanager
    def question(self) -> Iterator[None]:
        """One question of this thread, with a bound on its requests: the package follows redirects without end."""
        self._asking.left, self._asking.ambiguous = MOST_REQUESTS, False
        yield

    @property
    def ambiguous(self) -> bool:
        """Whether this thread's question led to a disambiguation page, whose HTML was asked for."""
        return bool(self._asking.ambiguous)

    def get(self, url: str, params: Mapping[str, Any], headers: object) -> "_Answer":
        """What the package takes for `requests.get`; address and headers are those of `fetch`."""
        self._asking.left -= 1
        self._asking.ambiguous |= "rvparse" in params
        if self._asking.left < 0:
            raise ToolFailed("bad_response", "Wikipedia redirects in a circle")
        return _Answer(_one_redirect(self._fetch(params), params))


class _Answer:
    """What the package takes for a response."""

    def __init__(self, body: dict[str, Any]) -> None:
        self._body = body

    def json(self) -> dict[str, Any]:
        return self._body


def private_copy(door: Door) -> ModuleType:
    """The package's module, run anew, asking through `door` and parsing with a parser that is named."""
    original = find_spec("wikipedia.wikipedia")
    assert original is not None
    assert original.origin is not None
    spec = spec_from_file_location(original.name, original.origin)
    assert isinstance(spec, ModuleSpec)
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    vars(module).update(requests=door, BeautifulSoup=_soup)
    return module


def _soup(html: str) -> Any:
    """A disambiguation page's HTML in which only links to articles are links, each with the article's title as text.

    Named parser: without one bs4 warns, and takes whatever is installed. Links to sister projects, to other
    namespaces and to pages that do not exist would become options.
    """
    from bs4 import BeautifulSoup

    soup = BeautifulSoup(html, "html.parser")
    for link in soup.find_all("a"):
        target, title = str(link.get("href") or ""), str(link.get("title") or "")
        if target.startswith("/wiki/") and ":" not in target and title:
            link.string = title
        else:
            link.unwrap()
    return soup


def _one_redirect(body: dict[str, Any], params: Mapping[str, Any]) -> dict[str, Any]:
    """The answer with its chain of redirects made one step, from the title that was asked.

    The package looks at the first of them only, and asserts that it starts at that title. A redirect to itself goes.
    """
    query = body.get("query")
    steps = query.get("redirects") if isinstance(query, dict) else None
    asked = params.get("titles")
    if not steps or not isinstance(query, dict) or asked is None:
        return body
    normalized = query.get("normalized") or []
    start = normalized[0]["to"] if normalized else asked
    onward = {step["from"]: step["to"] for step in steps}
    end, seen = start, set[str]()
    while end in onward and end not in seen:
        seen.add(end)
        end = onward[end]
    rest = {key: value for key, value in query.items() if key != "redirects"}
    if normalized:
        rest["normalized"] = [{"from": asked, "to": start}]
    if end != start and end not in seen:
        rest["redirects"] = [{"from": start, "to": end}]
    return {**body, "query": rest}
