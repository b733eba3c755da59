import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from agentrt_tools import OfflineCorpus, clean_title, open_corpus


def test_all_titles_are_there_as_shown(corpus: OfflineCorpus) -> None:
    assert len(corpus) == 7
    assert list(corpus.titles())[3] == "Brant & Sons"


@pytest.mark.parametrize(
    ("asked", "title"),
    [
        ("Brant &amp; Sons", "Brant & Sons"),
        ("brant & sons", "Brant & Sons"),
        ("  Port_Ellow ", "Port Ellow"),
        ('"Port Ellow."', "Port Ellow"),
        ("cafe zoe", "Café Zoë"),
    ],
)
def test_a_page_is_found_by_a_name_almost_right(corpus: OfflineCorpus, asked: str, title: str) -> None:
    article = corpus.article(asked)
    assert article is not None
    assert article.title == title


@pytest.mark.parametrize("asked", ["", "?", "Portellow", "The Glass Tide"])
def test_a_page_is_not_found_by_another_name(corpus: OfflineCorpus, asked: str) -> None:
    assert corpus.article(asked) is None


def test_an_exact_title_wins_over_one_in_other_case_and_a_guess_must_be_the_only_one(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    rows = ({"title": title, "sentences": [title]} for title in ("Cover version", "cover version"))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    corpus = open_corpus(path, tmp_path / "cache")
    asked = ("cover version", "COVER VERSION", "cover version!")
    found = [article and article.title for article in map(corpus.article, asked)]
    assert found == ["cover version", "Cover version", None]


def test_title_hits_come_before_text_hits(corpus: OfflineCorpus) -> None:
    assert [article.title for article in corpus.search("harbour port", 2)] == ["Port", "Port Ellow"]


def test_the_page_of_that_name_comes_first(corpus: OfflineCorpus) -> None:
    assert corpus.search("The Glass Tide (film)", 1)[0].title == "The Glass Tide (film)"


def test_a_search_finds_other_forms_of_a_word(corpus: OfflineCorpus) -> None:
    assert "Brant & Sons" in [article.title for article in corpus.search("ship builders closing", 5)]


def test_titles_are_ranked_against_the_question(corpus: OfflineCorpus) -> None:
    titles = ["Port", "Café Zoë", "Brant & Sons", "Mara Quill"]
    ranked = corpus.rank(titles, "Which shipbuilder closed?")
    assert ranked == ["Brant & Sons", "Port", "Café Zoë", "Mara Quill"]
    assert corpus.rank(titles, "") == titles


def test_corpora_of_the_same_content_are_one_object(corpus: OfflineCorpus, corpus_file: Path, tmp_path: Path) -> None:
    assert open_corpus(corpus_file, tmp_path / "cache") is corpus


def test_many_threads_get_the_same_answers(corpus: OfflineCorpus) -> None:
    def ask(_: int) -> tuple[list[str], list[str]]:
        return [a.title for a in corpus.search("Port Ellow", 3)], corpus.mentions("Mara Quill in Port Ellow")

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(ask, range(64)))
    assert all(answer == answers[0] for answer in answers)


def test_a_question_as_it_stands_finds_a_gold_page(hotpotqa: OfflineCorpus, shared_data: Path) -> None:
    questions = _questions(shared_data)
    found = 0
    for question in questions:
        gold = {clean_title(fact["title"]) for fact in question["supporting_facts"]}
        found += any(article.title in gold for article in hotpotqa.search(question["question"], 5))
    assert found / len(questions) >= 0.95


def test_every_title_of_a_question_can_be_opened(hotpotqa: OfflineCorpus, shared_data: Path) -> None:
    for question in _questions(shared_data):
        for page in question["context"]:
            article = hotpotqa.article(page["title"])
            assert article is not None
            assert article.title == clean_title(page["title"])


def test_one_gold_page_of_a_bridge_mentions_the_other(hotpotqa: OfflineCorpus, shared_data: Path) -> None:
    bridges = [question for question in _questions(shared_data) if question["type"] == "bridge"]
    linked = 0
    for question in bridges:
        gold = {clean_title(fact["title"]) for fact in question["supporting_facts"]}
        articles = [article for title in gold if (article := hotpotqa.article(title))]
        linked += any(gold - {a.title} & set(hotpotqa.mentions(a.text)) for a in articles)
    assert linked / len(bridges) > 0.9


def _questions(shared_data: Path) -> list[dict[str, Any]]:
    lines = (shared_data / "hotpotqa" / "questions_dev.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]
