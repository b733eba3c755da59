"""Lessons and questions by rule: the shipped ones are current, well formed, and none of the evaluation's."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from agentrt.builtin import agents_dir, configs_dir
from agentrt.errors import ConfigError
from agentrt.questions.datasets import load_questions
from agentrt.training.lessons import PAGES, QUESTIONS, pages, questions, read_facts, to_jsonl, write
from agentrt_tools.corpus import open_corpus

LESSONS = agents_dir() / "science" / "lessons"

FACTS = """
lessons:
  - title: Sweet and sour
    subject: natural science
    topic: biology
    grade: 3
    about: Fruits have a taste.
    ask_item: "Which of these is {kind}?"
    ask_kind: "What is {item}?"
    because: "{rule} {Item} is {kind}."
    kinds:
      - {name: sweet, rule: Sweet fruits hold sugar., items: [a fig, a plum, a pear]}
      - {name: sour, rule: Sour fruits hold acid., items: [a lemon, a lime, a sloe]}
"""


def rows(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def test_the_shipped_files_are_those_that_the_facts_give() -> None:
    lessons = read_facts(LESSONS)
    for name, made in ((PAGES, pages(lessons)), (QUESTIONS, questions(lessons))):
        text = (LESSONS / name).read_text(encoding="utf-8")
        assert text == to_jsonl(made), "run: python -m agentrt.training.lessons agents/science/lessons"


def test_every_shipped_question_is_read_and_its_lecture_is_a_page_or_none() -> None:
    asked = load_questions("mini-science", LESSONS / QUESTIONS, split="train")
    assert len(asked) >= 300
    assert all(question.lesson is not None for question in asked)
    assert len({(question.stem, frozenset(question.choices)) for question in asked}) == len(asked)
    texts = {"".join(row["sentences"]) for row in rows(LESSONS / PAGES)}
    paged = [question.lesson.lecture in texts for question in asked if question.lesson]
    assert 0.05 < paged.count(False) / len(paged) < 0.3, "some searches find no lesson, most do"


def test_no_letter_is_a_good_guess_among_questions_with_as_many_options() -> None:
    right = Counter((len(row["choices"]), row["answer"]) for row in rows(LESSONS / QUESTIONS))
    for size in {size for size, _ in right}:
        counts = [count for (options, _), count in right.items() if options == size]
        assert len(counts) == size
        assert max(counts) - min(counts) <= 1


def test_no_question_is_one_of_the_mini_benchmarks_evaluation() -> None:
    held_out = [row for row in rows(configs_dir() / "mini" / "science.jsonl") if row["split"] == "eval"]
    learnt = {(row["question"].casefold(), row["answer_text"]) for row in rows(LESSONS / QUESTIONS)}
    assert learnt.isdisjoint((row["question"].casefold(), row["answer_text"]) for row in held_out)
    told = {text for row in rows(LESSONS / QUESTIONS) for text in (row["lecture"], row["solution"])}
    assert told.isdisjoint(row[key] for row in held_out for key in ("lecture", "solution"))


def test_facts_become_a_page_and_questions_with_their_solutions(tmp_path: Path) -> None:
    (tmp_path / "facts").mkdir()
    (tmp_path / "facts" / "fruit.yaml").write_text(FACTS)
    write(tmp_path)
    article = open_corpus(tmp_path / PAGES, tmp_path / "cache").article("Sweet and sour")
    assert article is not None
    assert article.text == "Fruits have a taste. Sweet fruits hold sugar. Sour fruits hold acid."
    made = rows(tmp_path / QUESTIONS)
    assert len(made) == 12
    assert {row["lecture"] for row in made} == {article.text}
    [lime] = [row for row in made if row["question"] == "What is a lime?"]
    assert (lime["answer_text"], lime["choices"][lime["answer_index"]]) == ("sour", "sour")
    assert lime["solution"] == "Sour fruits hold acid. A lime is sour."
    sweet = next(row for row in made if row["question"] == "Which of these is sweet?")
    assert sweet["answer_text"] in ("a fig", "a plum", "a pear")
    assert set(sweet["choices"]) - {sweet["answer_text"]} <= {"a lemon", "a lime", "a sloe"}


def test_facts_that_do_not_fit_are_named_with_their_line(tmp_path: Path) -> None:
    (tmp_path / "facts").mkdir()
    (tmp_path / "facts" / "fruit.yaml").write_text(FACTS.replace("grade: 3", "grade: 13"))
    with pytest.raises(ConfigError, match=r"fruit\.yaml:6:12"):
        write(tmp_path)
