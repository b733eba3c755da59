"""The promises that configs/mini/README.md makes about the mini benchmark."""

import json
from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

Row = dict[str, Any]
MINI = Path(__file__).resolve().parents[2] / "configs" / "mini"
LEVELS = ("easy", "medium", "hard")
BANDS = {"1-4": range(1, 5), "5-8": range(5, 9), "9-12": range(9, 13)}
SPLITS = ("train", "eval")
ARTICLE_KEYS = {"id", "title", "sentences", "split"}
QUESTION_KEYS = {
    *("id", "benchmark", "split", "level", "type"),
    *("question", "answer", "supporting_facts", "context"),
}
SCIENCE_KEYS = {
    *("id", "benchmark", "split", "grade", "grade_band", "subject", "topic", "question", "choices"),
    *("hint", "lecture", "solution", "answer", "answer_index", "answer_text"),
}


def read(name: str) -> list[Row]:
    return [json.loads(line) for line in (MINI / name).read_text(encoding="utf-8").splitlines()]


ARTICLES, QUESTIONS, SCIENCE = read("articles.jsonl"), read("questions.jsonl"), read("science.jsonl")


# Each check returns what is wrong, so that the tests below can show that it finds a planted fault.


def article_faults(articles: list[Row]) -> list[str]:
    faults = [f"{row.get('id')}: keys" for row in articles if set(row) != ARTICLE_KEYS]
    for row in articles:
        sentences = row["sentences"]
        if not 4 <= len(sentences) <= 8:
            faults.append(f"{row['title']}: {len(sentences)} sentences")
        if sentences[0] != sentences[0].strip() or any(
            not s.startswith(" ") or s[1:] != s.strip() for s in sentences[1:]
        ):
            faults.append(f"{row['title']}: all sentences but the first begin with one blank")
        if any(not s.endswith(".") or "\n" in s for s in sentences):
            faults.append(f"{row['title']}: a sentence is one line and ends with a full stop")
        if row["split"] not in SPLITS:
            faults.append(f"{row['title']}: split {row['split']}")
    for key in ("id", "title"):
        faults += [f"{key} {v} twice" for v, n in Counter(row[key] for row in articles).items() if n > 1]
    return faults


def question_faults(questions: list[Row], articles: list[Row]) -> list[str]:
    by_title = {row["title"]: row for row in articles}
    faults = []
    for row in questions:
        name, facts = row["id"], row["supporting_facts"]
        if set(row) != QUESTION_KEYS or row["benchmark"] != "mini" or row["split"] not in SPLITS:
            faults.append(f"{name}: layout")
        if row["level"] not in LEVELS or row["type"] not in ("bridge", "comparison"):
            faults.append(f"{name}: level or type")
        if not row["question"].endswith("?") or "\n" in row["question"]:
            faults.append(f"{name}: a question is one line and ends with ?")
        titles = list(dict.fromkeys(fact["title"] for fact in facts))
        if [entry["title"] for entry in row["context"]] != titles:
            faults.append(f"{name}: context is not the titles of the facts")
        if len(titles) < 3 if row["level"] == "hard" else len(titles) != 2:
            faults.append(f"{name}: {len(titles)} articles for level {row['level']}")
        sentences = []
        for fact in facts:
            article = by_title.get(fact["title"])
            if article is None or not 0 <= fact["sent_id"] < len(article["sentences"]):
                faults.append(f"{name}: no sentence {fact}")
                continue
            sentences.append(article["sentences"][fact["sent_id"]])
            if article["split"] != row["split"]:
                faults.append(f"{name}: {fact['title']} belongs to the other split")
        if row["answer"] in ("yes", "no"):
            if row["type"] != "comparison":
                faults.append(f"{name}: only a comparison is answered yes or no")
        elif not row["answer"] or not any(row["answer"] in sentence for sentence in sentences):
            faults.append(f"{name}: {row['answer']!r} is not in the supporting sentences")
        if row["type"] == "bridge":
            for here, there in pairwise(titles):
                if here in by_title and there not in "".join(by_title[here]["sentences"]):
                    faults.append(f"{name}: {here} does not lead to {there}")
    for key in ("id", "question"):
        counts = Counter(row[key].casefold() for row in questions)
        faults += [f"{key} {v!r} twice" for v, n in counts.items() if n > 1]
    return faults


def split_faults(questions: list[Row]) -> list[str]:
    side: dict[str, dict[str, set[str]]] = {split: {"titles": set(), "answers": set()} for split in SPLITS}
    for row in questions:
        side[row["split"]]["titles"] |= {fact["title"] for fact in row["supporting_facts"]}
        side[row["split"]]["answers"] |= {row["answer"]} - {"yes", "no"}
    return [
        f"{kind} in both splits: {shared}"
        for kind in ("titles", "answers")
        if (shared := side["train"][kind] & side["eval"][kind])
    ]


def science_faults(rows: list[Row]) -> list[str]:
    faults = []
    for row in rows:
        name, choices, index = row["id"], row["choices"], row["answer_index"]
        if set(row) != SCIENCE_KEYS or row["benchmark"] != "mini-science" or row["split"] not in SPLITS:
            faults.append(f"{name}: layout")
        if row["grade"] not in BANDS[row["grade_band"]]:
            faults.append(f"{name}: grade {row['grade']} is not in {row['grade_band']}")
        if not 2 <= len(choices) <= 4 or len(set(choices)) != len(choices):
            faults.append(f"{name}: choices")
        if not 0 <= index < len(choices) or row["answer"] != "ABCD"[index]:
            faults.append(f"{name}: letter {row['answer']} and index {index}")
        elif row["answer_text"] != choices[index]:
            faults.append(f"{name}: the answer's text is not its choice")
        if any(not row[key].strip() for key in ("question", "hint", "lecture", "solution", "topic")):
            faults.append(f"{name}: an empty field")
        if len(row["lecture"].split()) > 60:
            faults.append(f"{name}: the lecture is long")
    for key in ("id", "question"):
        faults += [f"{key} {v!r} twice" for v, n in Counter(row[key] for row in rows).items() if n > 1]
    return faults


def test_articles_are_well_formed() -> None:
    assert article_faults(ARTICLES) == []


def test_every_answer_is_found_in_its_supporting_sentences() -> None:
    assert question_faults(QUESTIONS, ARTICLES) == []


def test_splits_share_no_supporting_article_and_no_answer() -> None:
    assert split_faults(QUESTIONS) == []


def test_science_letters_indices_and_texts_agree() -> None:
    assert science_faults(SCIENCE) == []


def test_counts_are_those_of_the_readme() -> None:
    readme = (MINI / "README.md").read_text(encoding="utf-8")
    for name, rows in (("articles", ARTICLES), ("questions", QUESTIONS), ("science", SCIENCE)):
        count = Counter(row["split"] for row in rows)
        line = f"| `{name}.jsonl` | {len(rows)} ({count['eval']} eval, {count['train']} train) |"
        assert line in readme
    assert len(ARTICLES) >= 110
    assert len(QUESTIONS) >= 64
    assert len(SCIENCE) >= 42
    levels = Counter((row["split"], row["level"]) for row in QUESTIONS)
    assert levels == {(s, level): 10 if s == "eval" else 14 for s in SPLITS for level in LEVELS}
    assert Counter((row["split"], row["grade_band"]) for row in SCIENCE) == {
        (split, band): 8 for split in SPLITS for band in BANDS
    }


def test_no_letter_is_a_good_guess() -> None:
    letters = Counter((row["split"], row["answer"]) for row in SCIENCE)
    assert letters == {(split, letter): 6 for split in SPLITS for letter in "ABCD"}


def test_both_types_and_both_short_answers_occur_in_each_split() -> None:
    for split in SPLITS:
        rows = [row for row in QUESTIONS if row["split"] == split]
        assert {row["type"] for row in rows} == {"bridge", "comparison"}
        assert {"yes", "no"} <= {row["answer"] for row in rows}


def test_the_demo_question_is_the_first_of_the_eval_split() -> None:
    first = next(row for row in QUESTIONS if row["split"] == "eval")
    assert first["question"] == "Which city is the birthplace of the director of Jaws?"
    assert first["answer"] == "Cincinnati"


def _break_answer(articles: list[Row], questions: list[Row], science: list[Row]) -> None:
    questions[0]["answer"] = "Cleveland"


def _break_sentence_id(articles: list[Row], questions: list[Row], science: list[Row]) -> None:
    questions[0]["supporting_facts"][0]["sent_id"] = 99


def _break_title(articles: list[Row], questions: list[Row], science: list[Row]) -> None:
    questions[0]["supporting_facts"][0]["title"] = "Jaws 9"


def _repeat_question(articles: list[Row], questions: list[Row], science: list[Row]) -> None:
    questions[1]["question"] = questions[0]["question"].upper()


def _move_question(articles: list[Row], questions: list[Row], science: list[Row]) -> None:
    questions[0]["split"] = "train"


def _shorten_article(articles: list[Row], questions: list[Row], science: list[Row]) -> None:
    del articles[0]["sentences"][3:]


def _drop_blank(articles: list[Row], questions: list[Row], science: list[Row]) -> None:
    articles[0]["sentences"][1] = articles[0]["sentences"][1].strip()


def _change_letter(articles: list[Row], questions: list[Row], science: list[Row]) -> None:
    science[0]["answer"] = "ABCD"[(science[0]["answer_index"] + 1) % 4]


def _change_text(articles: list[Row], questions: list[Row], science: list[Row]) -> None:
    science[0]["answer_text"] = "something else"


@pytest.mark.parametrize(
    "plant",
    [
        *(_break_answer, _break_sentence_id, _break_title, _repeat_question, _move_question),
        *(_shorten_article, _drop_blank, _change_letter, _change_text),
    ],
)
def test_the_checks_find_a_planted_fault(plant: Callable[[list[Row], list[Row], list[Row]], None]) -> None:
    articles, questions, science = deepcopy(ARTICLES), deepcopy(QUESTIONS), deepcopy(SCIENCE)
    plant(articles, questions, science)
    faults = [
        *article_faults(articles),
        *question_faults(questions, articles),
        *split_faults(questions),
        *science_faults(science),
    ]
    assert faults
