"""Serper against a double of the service: what is sent, and what each failure becomes."""

import json
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentrt_tools import RetryPolicy, SerperClient, SerperSearch, ToolFailed, ToolRunner
from agentrt_tools.web import Web
from tests.http_double import HttpDouble, Reply, http_double, replies

KEY = "sk-test-0123456789abcdef"
FOUND = {"organic": [{"title": "Jaws", "link": "https://en.wikipedia.org/wiki/Jaws_(film)", "snippet": "A film."}]}


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[HttpDouble]:
    monkeypatch.setenv("SERPER_API_KEY", KEY)
    with http_double(replies(Reply(FOUND))) as double:
        yield double


def tool(service: HttpDouble, **options: Any) -> SerperSearch:
    web = Web("Serper", user_agent="agentrt", read_s=0.3)
    return SerperSearch(SerperClient(url=f"{service.url}/search", web=web), **options)


def failure(service: HttpDouble, *given: Reply, **options: Any) -> ToolFailed:
    service.answer = replies(*given)
    with pytest.raises(ToolFailed) as caught:
        tool(service, **options)("jaws", {})
    return caught.value


def test_a_query_goes_out_as_json_with_the_key_in_its_header_alone(service: HttpDouble) -> None:
    result = tool(service, k=2, country="de", language="de")("  Jaws \n film ", {"mine": 1})
    (asked,) = service.asked
    assert (asked.method, asked.path, asked.params) == ("POST", "/search", {})
    assert asked.body == {"q": "Jaws film", "gl": "de", "hl": "de"}
    assert asked.headers["X-API-KEY"] == KEY
    assert result.text == "[1] Jaws: A film."
    assert result.titles == ("Jaws",)
    assert result.state == {"mine": 1, "page": None, "passages": ["A film."], "lookup_keyword": None, "lookup_next": 0}
    assert result.facts == {
        "query": "Jaws film",
        "results": [{"title": "Jaws", "link": "https://en.wikipedia.org/wiki/Jaws_(film)"}],
    }


@pytest.mark.parametrize(
    ("reply", "kind", "retryable", "says"),
    [
        (Reply({"message": "Unauthorized.", "statusCode": 403}, 403), "auth", False, "check SERPER_API_KEY"),
        (Reply({"message": "Unauthorized."}, 401), "auth", False, "refuses the key (401)"),
        (Reply({"message": "Not enough credits", "statusCode": 400}, 400), "quota", False, "credits are used up (400)"),
        (Reply({"message": "Not enough credits"}, 429), "quota", False, "credits are used up (429)"),
        (Reply({"message": "Bad q"}, 400), "bad_response", False, "refused the request (400): Bad q"),
        (Reply({"message": f"Bad key {KEY}"}, 400), "bad_response", False, "Bad key ***"),
        (Reply({"message": "Slow down"}, 429), "rate_limited", True, "too many requests"),
        (Reply("<html>oops</html>", 500), "bad_response", True, "a fault of its own (500)"),
        (Reply("<html>", 200), "bad_response", False, "answered 200 with no JSON object"),
        (Reply([1], 200), "bad_response", False, "no JSON object"),
        (Reply(FOUND, cut=5), "network", True, "closed the connection early"),
        (Reply(hang=True), "timeout", True, "no answer in 0.3 s"),
        (Reply("", 302, {"Location": "http://127.0.0.1:9/"}), "bad_response", False, "refused the request (302)"),
    ],
    ids=lambda value: str(value)[:30] if not isinstance(value, Reply) else f"{value.status}",
)
def test_every_failure_has_its_kind(service: HttpDouble, reply: Reply, kind: str, retryable: bool, says: str) -> None:
    failed = failure(service, reply)
    assert (failed.kind, failed.retryable) == (kind, retryable)
    assert says in str(failed)
    assert len(service.asked) == 1


@pytest.mark.parametrize(("header", "wait_s"), [({"Retry-After": "7"}, 7.0), ({}, None), ({"Retry-After": "x"}, None)])
def test_the_wait_that_the_service_asks_for_is_handed_on(
    service: HttpDouble, header: dict[str, str], wait_s: float | None
) -> None:
    assert failure(service, Reply({}, 429, header)).retry_after_s == wait_s


def test_too_many_requests_are_made_again_after_the_wait(service: HttpDouble) -> None:
    service.answer = replies(Reply({}, 429, {"Retry-After": "0"}), Reply({}, 500), Reply(FOUND))
    call = ToolRunner(RetryPolicy(backoff_s=0.001)).call(tool(service), "jaws", {})
    assert call.result is not None
    assert call.health.to_json() == {"calls": 1, "misses": 0, "retries": 2, "failures": {}}


def test_a_service_that_is_not_there_is_a_network_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERPER_API_KEY", KEY)
    with http_double(replies(Reply())) as double:
        gone = tool(double)
    with pytest.raises(ToolFailed, match="network: Serper cannot be reached") as caught:
        gone("jaws", {})
    assert caught.value.retryable


def test_autoact_reads_its_own_words_for_a_failure(service: HttpDouble) -> None:
    assert failure(service, Reply({}, 500), style="autoact").told == "bingSearch error, please try again."
    assert failure(service, Reply({}, 500)).told == ""


@pytest.mark.parametrize("key", ["", "  ", "a\nb", "schlüssel", "a b"])
def test_a_key_that_is_none_is_named_and_nothing_is_asked(
    service: HttpDouble, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, key: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SERPER_API_KEY", key)
    failed = failure(service, Reply(FOUND))
    assert failed.kind == "auth"
    assert "SERPER_API_KEY" in str(failed)
    assert "schl" not in str(failed)
    assert service.asked == []


def test_the_key_may_come_from_a_dotenv_file(
    service: HttpDouble, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("SERPER_API_KEY")
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".env").write_text("# mine\nSERPER_API_KEY='from-the-file'\n")
    tool(service)("jaws", {})
    assert service.asked[0].headers["X-API-KEY"] == "from-the-file"


def test_an_empty_query_costs_no_credit(service: HttpDouble) -> None:
    result = tool(service)(" \n", {})
    assert (result.text, result.miss, service.asked) == ("No results for [].", True, [])


@pytest.mark.parametrize("reply", [Reply({"message": f"no: {KEY}"}, 403), Reply(hang=True), Reply(FOUND, cut=9)])
def test_no_failure_shows_the_key_even_with_the_variables_of_its_frames(service: HttpDouble, reply: Reply) -> None:
    service.answer = replies(reply)
    search = tool(service)
    call = ToolRunner(RetryPolicy(attempts=1)).call(search, "jaws", {})
    assert call.failure is not None
    shown = traceback.TracebackException.from_exception(call.failure, capture_locals=True).format()
    texts = [*shown, repr(call.failure), repr(search), str(vars(search)), json.dumps(call.health.to_json())]
    assert KEY not in "".join(texts)
    assert call.failure.__context__ is None or KEY not in repr(vars(call.failure.__context__))
