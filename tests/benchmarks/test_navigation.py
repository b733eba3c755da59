"""What the tools show on the way from page to page, counted on articles whose links are known."""

import json
from pathlib import Path

import pytest

from agentrt.questions.question import Question, SupportingFact
from agentrt_tools.corpus import OfflineCorpus, open_corpus
from benchmarks.navigation import Walk, summarise, walk

ARTICLES = {
    "Jaws": "Jaws is a film by Steven Spielberg, shot in Oslo and Rome.",
    "Steven Spielberg": "Steven Spielberg is a director of Jaws, born in Cincinnati.",
    "Oslo": "Oslo is a city.",
    "Rome": "Rome is a city.",
    "Up": "Up is a film. It names nobody.",
}


@pytest.fixture
def corpus(tmp_path: Path) -> OfflineCorpus:
    rows = [json.dumps({"title": title, "sentences": [text]}) for title, text in ARTICLES.items()]
    (tmp_path / "corpus.jsonl").write_text("\n".join(rows))
    return open_corpus(tmp_path / "corpus.jsonl", tmp_path / "cache")


def asked(text: str, *gold: str) -> Question:
    facts = tuple(SupportingFact(title, 0) for title in gold)
    return Question("q", "hotpotqa", "", "", "bridge", text, "x", supporting_facts=facts)


def test_the_second_page_is_looked_for_among_the_ranked_links_of_the_first(corpus: OfflineCorpus) -> None:
    question = asked("Where was the director of Jaws born?", "Jaws", "Steven Spielberg")
    assert walk(corpus, question, k=1, links=5) == Walk("bridge", 1, True, 1)
    far = asked("Which city has a role in Jaws?", "Jaws", "Steven Spielberg")
    assert walk(corpus, far, k=1, links=5) == Walk("bridge", 1, True, 3)
    assert walk(corpus, far, k=1, links=2) == Walk("bridge", 1, True, None)


def test_pages_that_lead_nowhere_are_told_apart(corpus: OfflineCorpus) -> None:
    assert walk(corpus, asked("Up, the film?", "Up", "Rome"), k=1, links=5) == Walk("bridge", 1, False, None)
    assert walk(corpus, asked("Qwxyz?", "Up", "Rome"), k=1, links=5) == Walk("bridge", None, False, None)
    assert walk(corpus, asked("Up?", "Up", "Gone"), k=1, links=5) is None


def test_counts_are_by_kind() -> None:
    walks = [Walk("bridge", 1, True, 1), Walk("bridge", 2, True, 4), Walk("bridge", None, False, None)]
    counts = summarise([*walks, Walk("comparison", 1, False, None)])
    assert counts["bridge"] == {"questions": 3, "listed": 2, "mentioned": 2, "linked": 2, "first": 1}
    assert counts["comparison"] == {"questions": 1, "listed": 1, "mentioned": 0, "linked": 0, "first": 0}
