"""Wikipedia's tools: exact texts in both wordings, states, and the recorded bodies of the API."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentrt_tools import Json, ToolFailed, WikiClient, WikipediaLookup, WikipediaPage, WikipediaSearch
from agentrt_tools.web import Web
from agentrt_tools.wiki_client import Ambiguous, WikiPage
from agentrt_tools.wiki_text import page_passages, render_page
from tests.http_double import Asked, Reply, http_double, replies

from .wiki_double import wiki


@pytest.fixture
def client() -> Iterator[WikiClient]:
    with http_double(wiki) as double:
        yield WikiClient(url=double.url, web=Web("Wikipedia", user_agent="agentrt"))


@pytest.mark.parametrize(
    ("style", "asked", "text"),
    [
        ("react", "leaf cabbage", "Kale is a cabbage. It is green. Dr. K. eats it."),
        ("autoact", "leaf cabbage", "Kale is a cabbage.It is green. Dr. K. eats it."),
        ("react", "kal", "Could not find [kal]. Similar: [Kale; Kal]"),
        ("autoact", "kal", "Could not find [kal]. Similar: ['Kale', 'Kal']"),
        ("react", "zzz", "Could not find [zzz]."),
        ("autoact", "zzz", "Could not find [zzz]. Similar: []"),
        ("react", "Mercury", "Could not find [Mercury]. Similar: [Mercury (planet); Mercury (element)]"),
        ("autoact", "Mercury", "Could not find [Mercury]. Similar: ['Mercury']"),
    ],
)
def test_a_page_reads_exactly_so(client: WikiClient, style: Any, asked: str, text: str) -> None:
    result = WikipediaPage(client, style=style)(asked, {})
    assert result.text == text
    assert result.miss == text.startswith("Could not")
    assert list(result.titles) == result.facts.get("similar", [])


def test_a_number_of_sentences_and_of_similar_titles_may_be_chosen(client: WikiClient) -> None:
    assert WikipediaPage(client, sentences=1)("Kale", {}).text == "Kale is a cabbage."
    assert WikipediaPage(client, similar=1)("kal", {}).titles == ("Kale",)
    assert WikipediaPage(client, similar=0)("kal", {}).text == "Could not find [kal]."


@pytest.mark.parametrize(
    ("style", "texts"),
    [
        (
            "react",
            [
                "(Result 1 / 3) Kale is a cabbage.",
                "(Result 2 / 3) Kale is old.",
                "(Result 3 / 3) Kale was sold.",
                "No more results.",
            ],
        ),
        (
            "autoact",
            [
                "(Result 1/2) Kale is a cabbage.It is green. Dr. K. eats it.",
                "(Result 2/2) == History ==Kale is old. Kale was sold.",
                "No More Results",
            ],
        ),
    ],
)
def test_a_lookup_pages_through_the_open_page(client: WikiClient, style: Any, texts: list[str]) -> None:
    state = WikipediaPage(client, style=style)("Leaf cabbage", {"mine": 1}).state
    assert state == {"mine": 1, "page": "Kale", "read": ["Kale"], "lookup_keyword": None, "lookup_next": 0}
    lookup = WikipediaLookup(client, style=style)
    for text in texts:
        result = lookup("kale", json.loads(json.dumps(dict(state))))
        state = result.state
        assert result.text == text
    assert lookup("tree", state).text == ("No Results" if style == "autoact" else "No results for [tree] on this page.")


def test_a_lookup_without_a_page_scans_what_a_search_showed(client: WikiClient) -> None:
    lookup, found = WikipediaLookup(client), WikipediaSearch(client)("edison kale", {})
    assert found.text == "[1] Kale [2] Edison, New Jersey"
    assert lookup("jersey", found.state).text == "(Result 1 / 1) Edison, New Jersey"
    missed = WikipediaPage(client)("zzz", found.state)
    assert lookup("jersey", missed.state).text.startswith("No page is open.")
    autoact = WikipediaLookup(client, style="autoact")("jersey", missed.state)
    assert autoact.text == (
        "The last page Retrieved was not found, so you cannot Lookup a keyword in it. "
        "Please try one of the similar pages given."
    )


def test_a_search_without_a_hit_is_a_miss(client: WikiClient) -> None:
    result = WikipediaSearch(client)("zzz", {"page": "Kale"})
    assert (result.text, result.miss, result.state) == ("No results for [zzz].", True, {"page": "Kale"})


def test_autoact_reads_its_own_words_for_a_failure() -> None:
    with http_double(replies(Reply("<html>", 500))) as double:
        page = WikipediaPage(WikiClient(url=double.url, web=Web("Wikipedia", user_agent="agentrt")), style="autoact")
        with pytest.raises(ToolFailed) as caught:
            page("Kale", {})
    assert caught.value.told == "Could not find that page, please try again."


def recorded(folder: Path, name: str) -> Any:
    return json.loads((folder / "fixtures" / "wikipedia" / f"{name}.json").read_text(encoding="utf-8"))["response"][
        "body"
    ]


def ask(bodies: dict[str, Any], call: Any) -> Any:
    """`call` with a client that is answered with recorded bodies, by what they are asked for."""

    def answer(asked: Asked) -> Reply:
        kinds = ("search", "extracts", "info", "rvparse")
        kind = next(kind for kind in kinds if kind in " ".join([*asked.params, *asked.params.values()]))
        return Reply(bodies[kind])

    with http_double(answer) as double:
        return call(WikiClient(url=double.url, web=Web("Wikipedia", user_agent="agentrt")))


@pytest.mark.parametrize(
    ("name", "first", "count"),
    [
        ("search_default", "Python (programming language)", 10),
        ("search_limit3", "Python (programming language)", 3),
        ("search_near_match", "Python programming", 1),
        ("search_suggestion", "Python (programming language)", 10),
        ("legacy_search_barack_obama", "Barack Obama", 10),
        ("legacy_search_suggestion", "Butterfly's Tongue", 1),
        ("legacy_search_no_results", None, 0),
    ],
)
def test_recorded_searches_are_read(shared_data: Path, name: str, first: str | None, count: int) -> None:
    found = ask({"search": recorded(shared_data, name)}, lambda client: client.search("x", 10))
    assert len(found) == count
    assert found[:1] == ([first] if first else [])


def test_a_recorded_error_of_the_api_is_a_failure(shared_data: Path) -> None:
    with pytest.raises(ToolFailed, match="search-title-disabled"):
        ask({"search": recorded(shared_data, "search_what_title")}, lambda client: client.search("x", 10))


def test_a_recorded_page_is_read(shared_data: Path) -> None:
    info, extract = recorded(shared_data, "info_existing_page"), recorded(shared_data, "extract_full_page")
    for page in extract["query"]["pages"].values():  # the package asks for these beside the text
        page.setdefault("revisions", [{"revid": 1, "parentid": 0}])
    page = ask({"info": info, "extracts": extract}, lambda client: client.page("Python_(programming_language)"))
    assert isinstance(page, WikiPage)
    assert page.title == "Python (programming language)"
    assert render_page(page.content, "react", 1) == "Python is a high-level, general-purpose programming language."
    assert "object-oriented and functional programming.Guido van Rossum" in render_page(page.content, "autoact", 1)
    assert not any(passage.startswith("==") for passage in page_passages(page.content, "react"))


@pytest.mark.parametrize("name", ["info_missing_page", "legacy_missing_purpleberry"])
def test_a_recorded_missing_page_is_none(shared_data: Path, name: str) -> None:
    assert ask({"info": recorded(shared_data, name)}, lambda client: client.page("x")) is None


def test_a_recorded_redirect_leads_to_its_page(shared_data: Path) -> None:
    asked: list[str] = []
    redirect = recorded(shared_data, "legacy_redirect_menlo_park")
    page = {**redirect["query"]["pages"]["125414"], "extract": "Edison.", "revisions": [{"revid": 1, "parentid": 0}]}

    def answer(request: Asked) -> Reply:
        title = request.params["titles"]
        asked.append(title)
        if title == "Menlo Park, New Jersey":
            return Reply(redirect)
        return Reply({"query": {"pages": {"125414": page}}})

    with http_double(answer) as double:
        client = WikiClient(url=double.url, web=Web("Wikipedia", user_agent="agentrt"))
        assert client.page("Menlo Park, New Jersey") == WikiPage("Edison, New Jersey", "Edison.")
    assert asked == ["Menlo Park, New Jersey", "Edison, New Jersey", "Edison, New Jersey"]


def test_a_recorded_disambiguation_lists_its_articles(shared_data: Path) -> None:
    bodies = {
        "info": recorded(shared_data, "legacy_disambiguation_props_dodge_ram"),
        "rvparse": recorded(shared_data, "legacy_disambiguation_html_dodge_ram"),
    }
    found = ask(bodies, lambda client: client.page("Dodge Ram (disambiguation)"))
    assert isinstance(found, Ambiguous)
    assert found.options[:3] == ("Dodge Ramcharger", "Dodge Ram Van", "Dodge Mini Ram")


@pytest.mark.parametrize("name", ["legacy_extract_intro_celtuce", "legacy_extract_intro_tropical_depression"])
def test_a_recorded_introduction_is_one_line_in_both_wordings(shared_data: Path, name: str) -> None:
    (page,) = recorded(shared_data, name)["query"]["pages"].values()
    react, autoact = render_page(page["extract"], "react", 2), render_page(page["extract"], "autoact", 2)
    assert autoact == " ".join(page["extract"].split("\n\n")[0].split())
    assert autoact.startswith(react.split(". ")[0])
    assert "\n" not in react + autoact


def test_states_of_two_tools_stay_plain_json(client: WikiClient) -> None:
    state: dict[str, Json] = dict(WikipediaPage(client)("Kale", {}).state)
    assert json.loads(json.dumps(state)) == state
