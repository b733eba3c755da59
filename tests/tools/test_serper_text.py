"""What Serper's answers say, from recorded bodies and from broken ones, in both wordings."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrt_tools.serper_text import Hit, SearchPage, read_search, render_search

RICH: dict[str, Any] = {
    "answerBox": {"title": "Jaws", "answer": "Steven\nSpielberg"},
    "knowledgeGraph": {
        "title": "Jaws",
        "type": "1975 film",
        "description": "A thriller",
        "attributes": {"Director": "Steven Spielberg", "Box office": 476.5},
    },
    "organic": [
        {"title": "Jaws (film) - Wikipedia", "link": "https://en.wikipedia.org/wiki/Jaws_(film)", "snippet": "A film."},
        {"title": "Jaws", "link": "https://x.org", "snippet": "Sharks bite."},
    ],
}


def test_the_react_wording_is_exact() -> None:
    assert render_search(read_search(RICH), "jaws", "react") == (
        "Answer: Steven Spielberg About Jaws (1975 film): A thriller. Director: Steven Spielberg. Box office: 476.5. "
        "[1] Jaws (film): A film. [2] Jaws: Sharks bite."
    )


def test_the_autoact_wording_is_exact() -> None:
    plain = {"organic": RICH["organic"]}
    assert render_search(read_search(plain), "jaws", "autoact") == "A film.Sharks bite."
    assert render_search(read_search(RICH), "jaws", "autoact") == (
        "Steven SpielbergJaws (1975 film): A thriller. Director: Steven Spielberg. Box office: 476.5."
        "A film.Sharks bite."
    )


def test_nothing_found_is_said_in_the_words_of_the_style() -> None:
    assert render_search(SearchPage(), "jaws", "react") == "No results for [jaws]."
    assert render_search(SearchPage(), "jaws", "autoact") == "Bing search error"


def test_the_recorded_search_is_read(shared_data: Path) -> None:
    body = json.loads((shared_data / "fixtures" / "serper" / "search_apple_inc.json").read_text())
    page = read_search(body)
    assert len(page.results) == len(body["organic"])
    assert page.results[0].snippet == body["organic"][0]["snippet"]
    assert page.knowledge.startswith("Apple (Technology company): Apple Inc. is an American multinational corporation")
    assert "CEO: Tim Cook (Aug 24, 2011\u2013)." in page.knowledge
    assert page.titles()[0] == "Apple Inc."
    assert render_search(page.first(1), "apple", "react").endswith(f"[1] Apple: {body['organic'][0]['snippet']}")


@pytest.mark.parametrize("name", ["images_lion", "news_tesla_inc", "news_tesla_inc_qdr-h", "places_italian*"])
def test_a_recorded_answer_of_another_kind_has_no_results_and_no_error(shared_data: Path, name: str) -> None:
    (file,) = (shared_data / "fixtures" / "serper").glob(f"{name}.json")
    assert read_search(json.loads(file.read_text())).results == ()


@pytest.mark.parametrize(
    ("body", "page"),
    [
        ({}, SearchPage()),
        ({"organic": None, "answerBox": None, "knowledgeGraph": None}, SearchPage()),
        ({"organic": "x", "answerBox": [], "knowledgeGraph": 3}, SearchPage()),
        ({"organic": [None, 4, {}, {"title": None, "snippet": None, "link": "l"}]}, SearchPage()),
        ({"organic": [{"title": "T", "snippet": None}]}, SearchPage(results=(Hit("T", "", ""),))),
        ({"organic": [{"snippet": "S"}]}, SearchPage(results=(Hit("", "", "S"),))),
        ({"answerBox": {"snippet": "S"}}, SearchPage("S")),
        ({"answerBox": {"snippetHighlighted": ["a", None, "b"]}}, SearchPage("a b")),
        ({"answerBox": {"answer": 42}}, SearchPage("42")),
        ({"knowledgeGraph": {"type": "Person", "attributes": {"Born": "1970"}}}, SearchPage()),
        ({"knowledgeGraph": {"title": "Ada"}}, SearchPage("", "Ada.")),
        (
            {"knowledgeGraph": {"title": "Ada", "description": "Wrote!"}},
            SearchPage("", "Ada: Wrote!"),
        ),
    ],
)
def test_what_is_missing_or_null_is_left_out(body: dict[str, Any], page: SearchPage) -> None:
    assert read_search(body) == page


KEYS = st.sampled_from(["organic", "answerBox", "knowledgeGraph", "title", "attributes", "answer"])
JSON = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["organic", "answerBox", "knowledgeGraph"]), JSON))
def test_no_body_breaks_the_reader_and_every_text_is_one_line(body: dict[str, Any]) -> None:
    page = read_search(body)
    for style in ("react", "autoact"):
        assert "\n" not in render_search(page, "q", style)  # type: ignore[arg-type]  # both are styles
