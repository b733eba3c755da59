"""Wikipedia's pages and search, at most three requests at a time, with every failure as a ToolFailed."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar
from weakref import WeakValueDictionary

from agentrt_tools.base import ToolFailed
from agentrt_tools.titles import clean_title
from agentrt_tools.wiki_package import Door, private_copy

if TYPE_CHECKING:
    from agentrt_tools.web import Web

T = TypeVar("T")

AT_ONCE: Final = 3  # Wikimedia's API guidelines
CACHED_PAGES: Final = 128
_WAIT_S: Final = 20.0
_NOT_IN_TITLES: Final = frozenset("#<>[]|{}")

# Not state: the limit is Wikimedia's on this process, whatever clients and threads it has.
_SLOTS: Final = threading.BoundedSemaphore(AT_ONCE)


class WikiPage(NamedTuple):
    """A page by its own title, redirects followed; `content` is plain text with `== Heading ==` lines."""

    title: str
    content: str


class Ambiguous(NamedTuple):
    """A title that stands for several pages."""

    title: str
    options: tuple[str, ...]


class WikiClient:
    """Asks one Wikipedia. Any number of threads may share it; pages are kept, the least used go first.

    `contact` (an address or a URL) goes into the User-Agent, as Wikimedia asks of programs. `url` and `web` are for
    tests and for other MediaWiki sites.
    """

    def __init__(self, *, language: str = "en", contact: str = "", url: str = "", web: "Web | None" = None) -> None:
        from agentrt_tools.web import Web  # requests is loaded when a live tool is opened

        self._url = url or f"https://{language}.wikipedia.org/w/api.php"
        self._web = web or Web("Wikipedia", user_agent=user_agent(contact))
        self._door = Door(self._fetch)
        self._package = private_copy(self._door)
        self._pages: OrderedDict[str, WikiPage | Ambiguous] = OrderedDict()
        self._lock = threading.Lock()

    def page(self, title: str) -> WikiPage | Ambiguous | None:
        """The page of exactly that title, or the one it redirects to; None if there is none. Raises ToolFailed."""
        title = clean_title(title)
        if not title or _NOT_IN_TITLES & set(title):
            return None  # "A|B" would ask for two pages
        with self._lock:
            if title in self._pages:
                self._pages.move_to_end(title)
                return self._pages[title]
        found = self._ask(lambda: self._load(title))
        if found is not None:
            with self._lock:
                self._pages[title] = found
                if isinstance(found, WikiPage):
                    self._pages[found.title] = found  # a lookup asks for the page's own title
                while len(self._pages) > CACHED_PAGES:
                    self._pages.popitem(last=False)
        return found

    def search(self, words: str, most: int) -> list[str]:
        """Titles that match, the best first. Raises ToolFailed."""
        words = clean_title(words)
        if not words:
            return []
        # behind the package's own cache, which has no bound
        return self._ask(lambda: list(map(str, self._package.search.__wrapped__(words, results=most))))

    def _load(self, title: str) -> WikiPage | Ambiguous | None:
        package = self._package
        try:
            page = package.WikipediaPage(title)
            return WikiPage(str(page.title), str(page.content))
        except package.PageError:
            return None
        except package.DisambiguationError as several:
            return Ambiguous(title, tuple(dict.fromkeys(filter(None, map(str, several.options)))))
        except LookupError:
            if self._door.ambiguous:  # the page's HTML does not come as it did in 2014
                return Ambiguous(title, ())
            raise

    def _ask(self, question: Callable[[], T]) -> T:
        """The package's answer. What it raises where an answer is not as it expects becomes a ToolFailed."""
        try:
            with self._door.question():
                return question()
        except (LookupError, AttributeError, TypeError, AssertionError, ValueError) as error:
            what = type(error).__name__
        raise ToolFailed("bad_response", f"Wikipedia's answer is not what it should be ({what})")

    def _fetch(self, params: Mapping[str, Any]) -> dict[str, Any]:
        if not _SLOTS.acquire(timeout=_WAIT_S):
            raise ToolFailed("timeout", f"{AT_ONCE} requests to Wikipedia are under way already", retryable=True)
        try:
            response = self._web.get(self._url, {**params, "maxlag": 5})
        finally:
            _SLOTS.release()
        if failed := self._web.status_failure(response):
            raise failed
        if response.status_code in (401, 403):
            hint = "set `contact:` of the tool, or AGENTRT_CONTACT, to an address of yours"
            raise ToolFailed("auth", f"Wikipedia refuses this program ({response.status_code})", hint=hint)
        body = self._web.json_object(response)
        if "error" in body:
            raise _api_failure(body["error"], response.headers.get("Retry-After"))
        query = body.get("query")
        if isinstance(query, dict) and "interwiki" in query:  # "de:Berlin": another wiki's page
            return {"query": {"pages": {"-1": {"missing": "", "title": params.get("titles")}}}}
        return body


def user_agent(contact: str = "") -> str:
    """`agentrt/0.1.0 (contact) requests/2.32`, as Wikimedia's policy has it; the contact comes from the user."""
    return f"agentrt/{_version('agentrt')} ({contact or 'agents on a local model'}) requests/{_version('requests')}"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "0"


def _api_failure(error: Any, retry_after: str | None) -> ToolFailed:
    """An error that the API answers with status 200."""
    from agentrt_tools.web import retry_after_s

    code = str(error.get("code", "")) if isinstance(error, dict) else ""
    if code in ("maxlag", "ratelimited", "readonly"):
        wait_s = retry_after_s(retry_after)
        return ToolFailed("rate_limited", f"Wikipedia is busy ({code})", retryable=True, retry_after_s=wait_s)
    return ToolFailed("bad_response", f"Wikipedia refused the request ({code or 'no code'})")


# Not state: tools of one wiki share its client, and so its page cache, for as long as one of them is held.
_OPEN: Final[WeakValueDictionary[tuple[str, str], WikiClient]] = WeakValueDictionary()
_OPENING: Final = threading.Lock()


def shared_client(language: str, contact: str) -> WikiClient:
    """One client for all tools of a language and a contact."""
    with _OPENING:
        client = _OPEN.get((language, contact))
        if client is None:
            client = _OPEN[language, contact] = WikiClient(language=language, contact=contact)
        return client
