import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import pytest

from agentrt_tools import Json, OfflineCorpus, OfflineLookup, OfflinePage, OfflineSearch
from agentrt_tools.offline import LINKS


def test_a_search_lists_titles_with_the_start_of_their_first_sentence(corpus: OfflineCorpus) -> None:
    result = OfflineSearch(corpus, k=2, snippet_chars=31)("Mara Quill", {"page": "Port"})
    assert result.text.startswith("[1] Mara Quill: Mara Quill is a film director … [2] ")
    assert result.facts["results"] == list(result.titles[:2]) == ["Mara Quill", "The Glass Tide (film)"]
    assert result.state == {"page": "Port"}
    assert not result.miss


def test_a_search_gives_the_titles_in_its_snippets_too(corpus: OfflineCorpus) -> None:
    result = OfflineSearch(corpus, k=1)("Mara Quill", {})
    assert result.titles == ("Mara Quill", "Port Ellow")


def test_a_search_without_snippets_lists_titles(corpus: OfflineCorpus) -> None:
    assert OfflineSearch(corpus, k=1, snippet_chars=0)("Mara Quill", {}).text == "[1] Mara Quill"


@pytest.mark.parametrize("query", ["zzz", "", "??"])
def test_a_search_without_hits_is_a_miss(corpus: OfflineCorpus, query: str) -> None:
    result = OfflineSearch(corpus)(query, {})
    assert result.text == f"No results for [{query}]."
    assert result.miss
    assert result.titles == ()


def test_a_page_is_its_whole_text_and_is_remembered(corpus: OfflineCorpus) -> None:
    result = OfflinePage(corpus)("brant &amp; sons", {"mine": 1})
    assert result.text == "Brant & Sons was a shipbuilder. It closed in 1962."
    assert result.state == {
        "mine": 1,
        "page": "Brant & Sons",
        "read": ["Brant & Sons"],
        "lookup_keyword": None,
        "lookup_next": 0,
    }


def test_links_are_unread_titles_on_the_page_ranked_against_the_question(corpus: OfflineCorpus) -> None:
    page = OfflinePage(corpus, links=2)
    first = page("The Glass Tide (film)", {}, question="Which shipbuilder closed?")
    assert first.text.endswith(f"{LINKS}Brant & Sons; Mara Quill")
    assert first.titles == ("Mara Quill", "Port Ellow", "Brant & Sons")
    read: dict[str, Json] = {"read": ["Brant & Sons", "Mara Quill"]}
    again = page("The Glass Tide (film)", read, question="Which shipbuilder closed?")
    assert again.text.endswith(f"{LINKS}Port Ellow")


def test_links_are_ranked_by_what_the_question_asks_beyond_the_pages_read(corpus: OfflineCorpus) -> None:
    page, question = OfflinePage(corpus, links=1), "In which harbour was The Glass Tide shot?"
    assert corpus.rank(["Port Ellow", "Mara Quill"], question)[0] == "Mara Quill", "it names the film twice"
    assert page("The Glass Tide (film)", {}, question=question).text.endswith(f"{LINKS}Port Ellow")


def test_a_page_without_links_has_no_line_of_them(corpus: OfflineCorpus) -> None:
    assert LINKS not in OfflinePage(corpus, links=3)("Port", {}).text
    assert LINKS not in OfflinePage(corpus)("Mara Quill", {}).text


def test_a_page_read_twice_is_listed_once(corpus: OfflineCorpus) -> None:
    page = OfflinePage(corpus)
    assert page("Port", page("Port", {}).state).state["read"] == ["Port"]


def test_a_page_that_is_not_there_lists_similar_ones_and_closes_the_old(corpus: OfflineCorpus) -> None:
    before = OfflinePage(corpus)("Port", {}).state
    result = OfflinePage(corpus, similar=2)("The Glass Tide", before)
    assert result.text == "Could not find [The Glass Tide]. Similar: [The Glass Tide (film); Mara Quill]"
    assert result.titles == ("The Glass Tide (film)", "Mara Quill")
    assert result.miss
    assert (result.state["page"], result.state["read"]) == (None, ["Port"])


def test_nothing_similar_is_said_so(corpus: OfflineCorpus) -> None:
    assert OfflinePage(corpus)("zzz\n" * 100, {}).text == f"Could not find [{'zzz ' * 24}…]."


def test_a_lookup_goes_from_hit_to_hit(corpus: OfflineCorpus) -> None:
    lookup, state = OfflineLookup(corpus), OfflinePage(corpus)("Mara Quill", {}).state
    texts, misses = [], []
    for _ in range(4):
        result = lookup("  glass TIDE", state)
        state = _after_a_restart(result.state)
        texts.append(result.text)
        misses.append(result.miss)
    assert texts == [
        "(Result 1 / 2) She directed The Glass Tide in 1987.",
        "(Result 2 / 2) Critics of The Glass Tide praised Quill's use of colour.",
        "No more results.",
        "No more results.",
    ]
    assert misses == [False, False, True, True]


def test_a_lookup_names_the_titles_in_its_sentence(corpus: OfflineCorpus) -> None:
    state = OfflinePage(corpus)("Mara Quill", {}).state
    result = OfflineLookup(corpus)("directed", state)
    assert result.titles == ("The Glass Tide (film)",)
    assert result.facts == {"keyword": "directed", "page": "Mara Quill", "result": 1, "results": 1}


def test_another_keyword_or_a_new_page_starts_from_the_first_hit(corpus: OfflineCorpus) -> None:
    page, lookup = OfflinePage(corpus), OfflineLookup(corpus)
    state = lookup("glass", page("Mara Quill", {}).state).state
    other = lookup("quill", state)
    assert other.text.startswith("(Result 1 / 2)")
    assert lookup("glass", other.state).text.startswith("(Result 1 / 2)")
    assert lookup("glass", page("Mara Quill", state).state).text.startswith("(Result 1 / 2)")


def test_a_keyword_that_is_not_there_is_a_miss(corpus: OfflineCorpus) -> None:
    result = OfflineLookup(corpus)("zebra", OfflinePage(corpus)("Port", {}).state)
    assert result.text == "No results for [zebra] on this page."
    assert result.miss


@pytest.mark.parametrize(
    ("state", "keyword", "says"),
    [
        ({}, "x", "No page is open"),
        ({"page": None}, "x", "No page is open"),
        ({"page": "Gone"}, "x", "No page is open"),
        ({"page": "Port"}, " ", "Name a keyword"),
    ],
)
def test_a_lookup_that_cannot_be_tells_the_model(
    corpus: OfflineCorpus, state: Mapping[str, Json], keyword: str, says: str
) -> None:
    result = OfflineLookup(corpus)(keyword, state)
    assert says in result.text
    assert result.miss
    assert result.state == state


def test_states_of_episodes_do_not_mix_in_threads(corpus: OfflineCorpus) -> None:
    page, lookup = OfflinePage(corpus, links=2), OfflineLookup(corpus)
    titles = list(corpus.titles())

    def episode(n: int) -> bool:
        state = page(titles[n % len(titles)], {}, question="ship").state
        result = lookup("a", state)
        return state["page"] == titles[n % len(titles)] and result.state["read"] == [state["page"]]

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(episode, range(70)))


def test_every_text_is_one_line_on_a_real_corpus(hotpotqa: OfflineCorpus) -> None:
    page, search = OfflinePage(hotpotqa, links=3), OfflineSearch(hotpotqa)
    titles = set(hotpotqa.titles())
    for title in sorted(titles)[::100]:
        for result in (page(title, {}, question=title), search(title, {})):
            assert result.text.isprintable()
            assert set(result.titles) <= titles


def _after_a_restart(state: Mapping[str, Json]) -> dict[str, Json]:
    return json.loads(json.dumps(dict(state)))  # type: ignore[no-any-return]  # JSON of a state is a state
