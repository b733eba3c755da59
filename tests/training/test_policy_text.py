"""Quotations, wrong answers and the reading of questions: what the teacher's words are made of."""

import json
import random
from pathlib import Path

import pytest

from agentrt.errors import UsageError
from agentrt.training.card import skip_counts
from agentrt.training.quotes import quote, wrong_answer
from agentrt.training.sources import Skipped, find_span, read_questions
from agentrt_tools.corpus import open_corpus

SENTENCE = 'She was born in 1901 in the small town of Brill, near "Old" Oxford, to a family of clockmakers.'


@pytest.mark.parametrize(
    ("keep", "max_words", "expected"),
    [
        ("Brill", 5, "the small town of Brill"),
        ("Brill", 40, "She was born in 1901 in the small town of Brill"),
        ("", 4, "She was born in"),
        ("She", 3, "She was born"),
        ("absent", 4, "She was born in"),
        ("Oxford", 3, "near 'Old' Oxford"),
        ("a family of clockmakers", 2, "a family of clockmakers"),
    ],
)
def test_a_quotation_is_short_and_ends_with_what_it_shows(keep: str, max_words: int, expected: str) -> None:
    assert quote(SENTENCE, keep, max_words) == expected


def test_a_quotation_of_nothing_is_empty() -> None:
    assert quote("  ", "x", 5) == ""


@pytest.mark.parametrize(
    ("text", "answer", "expected"),
    [
        ("He lived in Waco, Texas.", "waco, texas.", "Waco, Texas"),
        ("It lies in Maricopa County, Arizona.", "Maricopa County,", "Maricopa County"),
        ("He played for the Farm band", "The Farm", "the Farm"),
        ("He played for Farm", "The Farm", "Farm"),
        ("An artist", "art", None),
        ("artful art", "art", "art"),
        ("nothing", "", None),
    ],
)
def test_an_answer_is_found_as_whole_words(text: str, answer: str, expected: str | None) -> None:
    assert find_span(text, answer) == expected


def test_a_wrong_answer_looks_like_the_answer_and_is_not_part_of_it() -> None:
    texts = ["The River Severn flows past Shrewsbury in 1809 and 1831, says Charles Darwin."]
    for seed in range(20):
        rng = random.Random(seed)
        assert wrong_answer("1809", "Which year?", texts, rng) == "1831"
        name = wrong_answer("Severn", "Where was Charles Darwin born?", texts, rng)
        assert name == "Shrewsbury"
    assert wrong_answer("yes", "", [], random.Random(0)) == "no"
    assert wrong_answer("Severn", "", ["nothing here"], random.Random(0)) is None


def test_questions_that_cannot_be_used_are_named_and_the_rest_is_kept(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text(json.dumps({"title": "Ulm", "sentences": ["Ulm is a city.", " It has a minster."]}) + "\n")
    good = {
        "id": "q0",
        "question": "Where?",
        "answer": "minster",
        "type": "bridge",
        "supporting_facts": [{"title": "Ulm", "sent_id": 1}, {"title": "Ulm", "sent_id": 7}],
    }
    rows = [
        good,
        good | {"id": "q1", "answer": "castle"},
        good | {"id": "q2", "supporting_facts": []},
        good | {"id": "q3", "supporting_facts": [{"title": "Bonn", "sent_id": 0}]},
        good | {"id": "q4", "answer": ""},
        good | {"id": "q5", "answer": "castle", "split": "eval"},
        good | {"id": "q6", "answer": "yes", "type": "comparison"},
    ]
    path = tmp_path / "questions.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    usable, skipped = read_questions(path, open_corpus(corpus, tmp_path / "cache"), split="train")
    assert [question.id for question in usable] == ["q0", "q6"]
    assert [fact.sentence for fact in usable[0].facts] == ["It has a minster."]
    assert [one.id for one in skipped] == ["q1", "q2", "q3", "q4"]
    assert [one.place for one in skipped] == [f"{path}:{line}" for line in (2, 3, 4, 5)]
    assert skipped[0].reason == "its answer is on none of its pages: 'castle'"
    assert skipped[3].reason.startswith("its answer cannot be used: ")
    assert skip_counts([*skipped, Skipped("q9", "its page is not in the corpus: 'Rome'")]) == {
        "it has no supporting facts": 1,
        "its answer cannot be used": 1,
        "its answer is on none of its pages": 1,
        "its page is not in the corpus": 2,
    }


def test_lines_that_are_no_question_are_named_with_their_place_and_the_rest_is_kept(tmp_path: Path) -> None:
    corpus, path = tmp_path / "corpus.jsonl", tmp_path / "questions.jsonl"
    corpus.write_text(json.dumps({"title": "Ulm", "sentences": ["Ulm is a city."]}) + "\n")
    good = {"id": "q", "question": "Is it?", "answer": "yes", "supporting_facts": [{"title": "Ulm", "sent_id": 0}]}
    lines = [good, "{", 3, good | {"id": "b", "benchmark": "quiz"}, good | {"id": "n", "benchmark": None}]
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines))
    usable, skipped = read_questions(path, open_corpus(corpus, tmp_path / "cache"))
    assert [question.id for question in usable] == ["q"]
    assert [one.place for one in skipped] == [f"{path}:{line}" for line in (2, 3, 4, 5)]
    assert [one.id for one in skipped] == ["questions.jsonl:2", f"{path}:3", "b", "n"]
    assert skip_counts(skipped) == {"it is not JSON": 1, "its row cannot be used": 1, "its benchmark cannot be used": 2}
    assert skipped[2].reason.endswith("'quiz' is none of mini, mini-science, hotpotqa, scienceqa")


def test_a_file_without_a_question_of_the_split_is_named_with_those_it_has(tmp_path: Path) -> None:
    corpus, path = tmp_path / "corpus.jsonl", tmp_path / "questions.jsonl"
    corpus.write_text(json.dumps({"title": "Ulm", "sentences": ["Ulm is a city."]}) + "\n")
    row = {"question": "Is it?", "answer": "yes", "supporting_facts": [{"title": "Ulm", "sent_id": 0}]}
    rows = [row | {"id": str(n), "split": split} for n, split in enumerate(("eval", "dev", "eval"))]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    told = r"questions\.jsonl: no question of split 'train'; the questions in it: dev \(1\), eval \(2\)\. Give"
    with pytest.raises(UsageError, match=told):
        read_questions(path, open_corpus(corpus, tmp_path / "cache"), split="train")
