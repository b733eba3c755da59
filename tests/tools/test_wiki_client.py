"""The Wikipedia client against a double of the API: guards around the `wikipedia` package."""

import sys
import threading
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest
import wikipedia

import agentrt_tools.wiki_client
from agentrt_tools import ToolFailed, WikiClient
from agentrt_tools.web import Web
from agentrt_tools.wiki_client import Ambiguous, WikiPage, shared_client, user_agent
from tests.http_double import Asked, HttpDouble, Reply, http_double, replies

from .wiki_double import PAGES, wiki


@pytest.fixture
def service() -> Iterator[HttpDouble]:
    with http_double(wiki) as double:
        yield double


def client(service: HttpDouble, read_s: float = 0.3) -> WikiClient:
    web = Web("Wikipedia", user_agent=user_agent("me@example.org"), read_s=read_s)
    return WikiClient(url=f"{service.url}/w/api.php", web=web)


def titles(service: HttpDouble) -> list[str]:
    return [asked.params.get("titles", "search") for asked in service.asked]


def test_a_page_is_asked_for_politely(service: HttpDouble) -> None:
    assert client(service).page("Kale") == WikiPage("Kale", PAGES["Kale"])
    for asked in service.asked:
        assert asked.path == "/w/api.php"
        assert asked.headers["User-Agent"].startswith("agentrt/")
        assert "(me@example.org) requests/" in asked.headers["User-Agent"]
        assert asked.params["maxlag"] == "5"


@pytest.mark.parametrize("title", ["Kale", "BSOD", "C"])
def test_an_exact_title_is_not_mangled_by_a_suggestion(service: HttpDouble, title: str) -> None:
    """The package would ask for a suggestion and open "Kal", "BSD" or another page."""
    page = client(service).page(title)
    assert isinstance(page, WikiPage)
    assert page.title == title
    assert "search" not in titles(service)


@pytest.mark.parametrize(
    ("asked", "title", "requests"),
    [
        ("Menlo Park", "Edison, New Jersey", 3),
        ("Leaf cabbage", "Kale", 3),
        ("leaf_cabbage", "Kale", 3),
        ("borecole", "Kale", 3),
    ],
)
def test_redirects_and_their_chains_lead_to_the_page(
    service: HttpDouble, asked: str, title: str, requests: int
) -> None:
    page = client(service).page(asked)
    assert isinstance(page, WikiPage)
    assert (page.title, len(service.asked)) == (title, requests)


def test_redirects_in_a_circle_end(service: HttpDouble) -> None:
    assert client(service).page("Loop") is None
    assert len(service.asked) == 1


def test_redirects_that_never_end_are_given_up(service: HttpDouble) -> None:
    def endless(asked: Asked) -> Reply:
        title = asked.params["titles"]
        steps = [{"from": title, "to": title + "x"}]
        return Reply({"query": {"redirects": steps, "pages": {"1": {"title": title + "x"}}}})

    service.answer = endless
    with pytest.raises(ToolFailed, match="redirects in a circle"):
        client(service).page("A")
    assert len(service.asked) == 6


def test_a_disambiguation_lists_articles_by_their_titles_and_warns_of_nothing(service: HttpDouble) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = client(service).page("Mercury")
    assert found == Ambiguous("Mercury", ("Mercury (planet)", "Mercury (element)"))


def test_a_disambiguation_without_its_html_has_no_options(service: HttpDouble) -> None:
    def modern(asked: Asked) -> Reply:
        reply = wiki(asked)
        for page in reply.body["query"]["pages"].values():
            page.pop("revisions", None)
        return reply

    service.answer = modern
    assert client(service).page("Mercury") == Ambiguous("Mercury", ())


@pytest.mark.parametrize("title", ["Purpleberry", "", "  ", "Kale|BSOD", "C#", "[[Kale]]", "de:Berlin"])
def test_a_title_without_a_page_is_none(service: HttpDouble, title: str) -> None:
    assert client(service).page(title) is None
    assert len(service.asked) <= 1


def test_a_page_is_asked_for_once_under_each_of_its_names(service: HttpDouble) -> None:
    wiki_client = client(service)
    first, again, own = (wiki_client.page(title) for title in ("Menlo Park", " Menlo  Park", "Edison, New Jersey"))
    assert first == again == own
    assert len(service.asked) == 3


def test_the_page_cache_has_a_bound(service: HttpDouble, monkeypatch: pytest.MonkeyPatch) -> None:
    bound = 5
    monkeypatch.setattr(agentrt_tools.wiki_client, "CACHED_PAGES", bound)

    def any_page(asked: Asked) -> Reply:
        title = asked.params["titles"]
        page = {"title": title, "fullurl": "u", "extract": "x", "revisions": [{"revid": 1, "parentid": 0}]}
        return Reply({"query": {"pages": {"1": page}}})

    service.answer = any_page
    wiki_client = client(service)
    for number in range(bound + 1):
        wiki_client.page(f"P{number}")
    asked = len(service.asked)
    wiki_client.page(f"P{bound}")
    assert len(service.asked) == asked
    wiki_client.page("P0")
    assert len(service.asked) > asked


def test_a_search_lists_titles(service: HttpDouble) -> None:
    assert client(service).search("edison kale", 2) == ["Kale", "Edison, New Jersey"]
    assert client(service).search(" ", 2) == []
    assert client(service).search("zzz", 2) == []


@pytest.mark.parametrize(
    ("reply", "kind", "retryable", "says"),
    [
        (Reply("Please set a user-agent and respect our robot policy", 403), "auth", False, "AGENTRT_CONTACT"),
        (Reply("too many requests", 429), "rate_limited", True, "too many requests"),
        (Reply("<html>", 503), "bad_response", True, "(503)"),
        (Reply("not json"), "bad_response", False, "no JSON object"),
        (Reply({"error": {"code": "maxlag", "info": "lagged"}}), "rate_limited", True, "busy (maxlag)"),
        (Reply({"error": {"code": "search-title-disabled"}}), "bad_response", False, "search-title-disabled"),
        (Reply({"error": "x"}), "bad_response", False, "no code"),
        (Reply({"batchcomplete": ""}), "bad_response", False, "not what it should be (KeyError)"),
        (Reply({"query": {"pages": {"1": {"title": "x"}}}}), "bad_response", False, "(KeyError)"),
        (Reply({"query": {"pages": {}}}), "bad_response", False, "(IndexError)"),
        (Reply({"query": None}), "bad_response", False, "(TypeError)"),
        (Reply({"query": {}}, cut=4), "network", True, "closed the connection early"),
        (Reply(hang=True), "timeout", True, "no answer in 0.3 s"),
    ],
    ids=lambda value: str(value)[:24] if not isinstance(value, Reply) else f"{value.status}",
)
def test_every_failure_has_its_kind(service: HttpDouble, reply: Reply, kind: str, retryable: bool, says: str) -> None:
    service.answer = replies(reply)
    with pytest.raises(ToolFailed) as caught:
        client(service).page("Kale")
    assert (caught.value.kind, caught.value.retryable) == (kind, retryable)
    assert says in str(caught.value)


def test_redirects_of_the_address_are_followed_and_end(service: HttpDouble) -> None:
    def moved(asked: Asked) -> Reply:
        return wiki(asked) if asked.path == "/new" else Reply("", 301, {"Location": "/new?" + query(asked)})

    def query(asked: Asked) -> str:
        return "&".join(f"{name}={value}" for name, value in asked.params.items())

    service.answer = moved
    assert isinstance(client(service).page("Kale"), WikiPage)
    service.answer = replies(Reply("", 302, {"Location": "/w/api.php"}))
    with pytest.raises(ToolFailed, match="redirected more than 5 times"):
        client(service).page("BSOD")


def state_of_the_package() -> dict[str, Any]:
    module = sys.modules["wikipedia.wikipedia"]
    names = ("API_URL", "USER_AGENT", "RATE_LIMIT", "RATE_LIMIT_MIN_WAIT", "RATE_LIMIT_LAST_CALL")
    held: dict[str, Any] = {name: getattr(module, name) for name in names}
    held |= {name: id(getattr(module, name)) for name in ("requests", "BeautifulSoup", "WikipediaPage", "search")}
    held |= {name: dict(getattr(module, name)._cache) for name in ("search", "suggest", "summary")}
    return held


def test_eight_threads_stay_within_three_requests_and_a_host_application_keeps_its_package(
    service: HttpDouble,
) -> None:
    fourth = threading.Barrier(4)

    def held(asked: Asked) -> Reply:
        with suppress(threading.BrokenBarrierError):
            fourth.wait(0.3)  # three requests wait for one that must not come
        return wiki(asked)

    service.answer = held
    wikipedia.set_user_agent("the host's own")
    before, modules = state_of_the_package(), set(sys.modules)
    clients = [client(service, 8.0), client(service, 8.0)]  # the limit is the process's, not a client's
    wanted = ["Kale", "Menlo Park", "Mercury", "Leaf cabbage", "BSOD", "Nothing", "C", "Edison, New Jersey"] * 3
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda job: clients[job[0] % 2].page(job[1]), enumerate(wanted)))
    named = [page.title if page is not None else None for page in found]
    assert named == ["Kale", "Edison, New Jersey", "Mercury", "Kale", "BSOD", None, "C", "Edison, New Jersey"] * 3
    assert fourth.broken
    assert service.most_at_once == 3
    assert state_of_the_package() == before
    assert not [name for name in set(sys.modules) - modules if "wikipedia" in name]
    assert all("the host" not in asked.headers["User-Agent"] for asked in service.asked)


def test_tools_of_one_language_share_a_client() -> None:
    english = shared_client("en", "")
    assert shared_client("en", "") is english
    assert shared_client("de", "") is not english
    assert shared_client("de", "")._url == "https://de.wikipedia.org/w/api.php"
