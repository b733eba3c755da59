"""Questions are read from what is shipped, from our JSONL and from the datasets' own JSON, or refused by line."""

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from agentrt.errors import DataError, UsageError
from agentrt.evaluate.scoring import score
from agentrt.questions.datasets import BENCHMARKS, SupportingFact, load_questions

HOTPOT: dict[str, Any] = {
    "_id": "5a8b57f2",
    "question": "Which city is the birthplace of the director of Jaws?",
    "answer": "Cincinnati",
    "type": "bridge",
    "level": "hard",
    "supporting_facts": [["Jaws", 0], ["Steven Spielberg", 1]],
    "context": [["Jaws", ["One.", " Two."]], ["Steven Spielberg", ["One."]], ["Ohio", ["One."]]],
}
SCIENCE: dict[str, Any] = {
    "question": "Which is a mammal?",
    "choices": ["a frog", "a bat"],
    "answer": 1,
    "hint": "Mammals have fur.",
    "image": None,
    "grade": "grade5",
    "split": "test",
}


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def lines(*rows: Any) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def test_mini_holds_its_eval_questions_by_default() -> None:
    questions = load_questions("mini")
    first = questions[0]
    assert first.text == "Which city is the birthplace of the director of Jaws?"
    assert (first.answer, first.group, first.kind, first.split) == ("Cincinnati", "easy", "bridge", "eval")
    assert first.titles == ("Jaws", "Steven Spielberg")
    assert first.supporting_facts == (SupportingFact("Jaws", 0), SupportingFact("Steven Spielberg", 1))
    assert Counter(q.group for q in questions) == {"easy": 10, "medium": 10, "hard": 10}
    assert {q.split for q in questions} == {"eval"}


@pytest.mark.parametrize("benchmark", ["mini", "mini-science"])
def test_splits_of_what_is_shipped_add_up(benchmark: str) -> None:
    train = load_questions(benchmark, split="train")
    both = load_questions(benchmark, split=None)
    assert {q.split for q in train} == {"train"}
    assert len(train) + len(load_questions(benchmark, split="eval")) == len(both)
    assert all(score(q, q.letter or q.answer).correct for q in both)


def test_a_science_question_is_posed_with_its_context_and_lettered_options(tmp_path: Path) -> None:
    row = {**SCIENCE, "id": "x", "answer": "B", "grade": 5, "benchmark": "scienceqa"}
    (question,) = load_questions("scienceqa", write(tmp_path / "q.jsonl", lines(row)))
    assert question.text == ("Which is a mammal?\nContext: Mammals have fur.\nOptions: (A) a frog (B) a bat")
    assert (question.letter, question.answer, question.group) == ("B", "a bat", "5-8")
    (plain,) = load_questions("scienceqa", write(tmp_path / "q.jsonl", lines({**row, "hint": ""})))
    assert plain.text == "Which is a mammal?\nOptions: (A) a frog (B) a bat"


@pytest.mark.parametrize("indent", [None, 1])
def test_hotpotqa_is_read_from_its_own_json(tmp_path: Path, indent: int | None) -> None:
    data = write(tmp_path / "hotpot_dev.json", json.dumps([HOTPOT, {**HOTPOT, "_id": "b"}], indent=indent))
    first, second = load_questions("hotpotqa", data)
    assert (first.id, second.id) == ("hotpot-5a8b57f2", "hotpot-b")
    assert first.supporting_facts == (SupportingFact("Jaws", 0), SupportingFact("Steven Spielberg", 1))
    assert first.titles == ("Jaws", "Steven Spielberg", "Ohio")
    assert (first.benchmark, first.group, first.kind, first.split) == ("hotpotqa", "hard", "bridge", "")


@pytest.mark.parametrize("indent", [None, 2])
def test_scienceqa_is_read_from_problems_json(tmp_path: Path, indent: int | None) -> None:
    problems = {"7": SCIENCE, "8": {**SCIENCE, "image": "image.png"}, "12": {**SCIENCE, "split": "val"}}
    data = write(tmp_path / "problems.json", json.dumps(problems, indent=indent))
    assert [q.id for q in load_questions("scienceqa", data)] == ["sqa-00007", "sqa-00012"]
    (question,) = load_questions("scienceqa", data, "test")
    assert (question.letter, question.answer, question.group) == ("B", "a bat", "5-8")


def test_a_caption_stands_in_for_an_image(tmp_path: Path) -> None:
    row = {**SCIENCE, "id": "x", "image": "image.png", "caption": "A bat in a cave."}
    (question,) = load_questions("scienceqa", write(tmp_path / "q.jsonl", lines(row)))
    assert "\nContext: Mammals have fur. Image: A bat in a cave.\n" in question.text


def test_rows_a_line_are_read_whatever_the_file_is_called(tmp_path: Path) -> None:
    data = write(tmp_path / "rows.json", "\n" + lines(HOTPOT, {**HOTPOT, "_id": "b"}))
    assert len(load_questions("hotpotqa", data)) == 2


def test_a_file_is_taken_whole_unless_a_split_is_named(tmp_path: Path) -> None:
    rows = [{**HOTPOT, "_id": "a", "split": "dev"}, {**HOTPOT, "_id": "b", "split": "train"}]
    data = write(tmp_path / "q.jsonl", lines(*rows))
    assert len(load_questions("hotpotqa", data)) == 2
    assert [q.id for q in load_questions("hotpotqa", data, "dev")] == ["hotpot-a"]
    with pytest.raises(UsageError, match=r"no question of split 'eval'; the file holds dev \(1\), train \(1\)"):
        load_questions("hotpotqa", data, "eval")


def test_unknown_benchmarks_and_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"'hotpot'; choose one of mini, mini-science, hotpotqa, scienceqa"):
        load_questions("hotpot")
    with pytest.raises(UsageError, match=r"hotpotqa is not shipped .*--data FILE"):
        load_questions("hotpotqa")
    with pytest.raises(UsageError, match=r"absent\.jsonl: No such file"):
        load_questions("mini", tmp_path / "absent.jsonl")


def without(row: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != key}


ROW = {**SCIENCE, "id": "x"}
PRETTY_LINES = len(json.dumps([HOTPOT], indent=1).splitlines())


@pytest.mark.parametrize(
    ("benchmark", "text", "line", "message"),
    [
        ("hotpotqa", "", 1, "the file is empty"),
        ("hotpotqa", "[]", 1, "holds no row"),
        ("hotpotqa", lines(HOTPOT) + "{broken\n", 2, "not a JSON object"),
        ("hotpotqa", "\n\n[1]", 3, "a row must be a JSON object, not int"),
        ("hotpotqa", lines(HOTPOT) + "3\n", 2, "a row must be a JSON object, not int"),
        ("hotpotqa", lines(HOTPOT) + "\n" + lines(HOTPOT), 3, "id 'hotpot-5a8b57f2' occurs twice"),
        ("hotpotqa", lines(without(HOTPOT, "answer")), 1, "answer: field required; a row of hotpotqa holds id"),
        ("hotpotqa", lines(without(HOTPOT, "_id")), 1, "id: field required"),
        ("hotpotqa", lines({**HOTPOT, "answer": 3}), 1, "answer: input should be a valid string"),
        ("hotpotqa", lines({**HOTPOT, "supporting_facts": [["Jaws", -1]]}), 1, "supporting_facts.0.sent_id: "),
        ("hotpotqa", lines({**HOTPOT, "supporting_facts": [["Jaws"]]}), 1, "supporting_facts.0: "),
        ("hotpotqa", lines({**HOTPOT, "benchmark": "mini"}), 1, "a row of benchmark 'mini', read as 'hotpotqa'"),
        ("hotpotqa", json.dumps([HOTPOT], indent=1)[:-2], PRETTY_LINES - 1, "expected a comma or ']'"),
        ("hotpotqa", json.dumps([HOTPOT], indent=1) + "\nmore", PRETTY_LINES + 1, "more text after the end"),
        ("scienceqa", lines(HOTPOT), 1, "field required; a row of scienceqa holds id, question, choices"),
        ("scienceqa", lines({**ROW, "answer": "C"}), 1, "answer 'C' names none of the 2 choices; give A to B"),
        ("scienceqa", lines({**ROW, "answer": 2}), 1, "answer 2 names none of the 2 choices"),
        ("scienceqa", lines({**ROW, "answer": ""}), 1, "answer '' names none"),
        ("scienceqa", lines({**ROW, "answer_index": 0}), 1, "but answer_index is 0"),
        ("scienceqa", lines({**ROW, "answer_text": "a cow"}), 1, "answer_text is 'a cow'"),
        ("scienceqa", lines({**ROW, "grade": "grade13"}), 1, "grade 'grade13' is unknown; give 1 to 12"),
        ("scienceqa", lines({**ROW, "choices": ["one"]}), 1, "choices: list should have at least 2 items"),
        ("scienceqa", '{"7": {\n"question": "x"}}', 1, ": field required; a row of scienceqa"),
        ("scienceqa", '{\n"7": ' + json.dumps(SCIENCE) + ',\n"8": {"question"}}', 3, "not JSON"),
        ("scienceqa", "{\n7: {}}", 2, "expected a name and a colon"),
        ("scienceqa", "question,answer\nx,y\n", 1, "not JSON; give rows as JSONL"),
    ],
)
def test_a_bad_row_is_refused_with_its_line(tmp_path: Path, benchmark: str, text: str, line: int, message: str) -> None:
    data = write(tmp_path / "bad.json", text)
    with pytest.raises(DataError) as caught:
        load_questions(benchmark, data)
    assert str(caught.value).startswith(f"{data}:{line}: ")
    assert re.search(re.escape(message), str(caught.value)), caught.value


def test_a_file_that_is_not_utf8_is_refused_with_its_line(tmp_path: Path) -> None:
    data = tmp_path / "latin.jsonl"
    data.write_bytes(lines(HOTPOT).encode() + '{"question": "Málaga"}'.encode("latin-1"))
    with pytest.raises(DataError, match=r"latin\.jsonl:2: not UTF-8"):
        load_questions("hotpotqa", data)


def test_every_benchmark_that_ships_is_there() -> None:
    for name, benchmark in BENCHMARKS.items():
        if benchmark.shipped:
            assert load_questions(name)


@pytest.mark.parametrize(
    ("benchmark", "file", "groups"),
    [
        ("hotpotqa", "hotpotqa/questions_dev.jsonl", {"easy": 16, "medium": 69, "hard": 15}),
        ("hotpotqa", "hotpotqa/questions_eval.jsonl", {"easy": 100, "medium": 100, "hard": 100}),
        ("hotpotqa", "hotpotqa/questions_train.jsonl", {"easy": 86, "medium": 329, "hard": 85}),
        ("scienceqa", "scienceqa/eval.jsonl", {"1-4": 61, "5-8": 52, "9-12": 120}),
        ("scienceqa", "scienceqa/eval_image_captioned.jsonl", {"1-4": 59, "5-8": 68}),
        ("scienceqa", "scienceqa/train.jsonl", {"1-4": 186, "5-8": 247, "9-12": 87}),
    ],
)
def test_the_shared_files_are_read_whole_and_gold_scores_right(
    shared_data: Path, benchmark: str, file: str, groups: dict[str, int]
) -> None:
    questions = load_questions(benchmark, shared_data / file)
    assert Counter(q.group for q in questions) == groups
    assert all(score(q, q.letter or q.answer).correct for q in questions)
    assert all(score(q, q.answer).correct for q in questions if not q.choices)
