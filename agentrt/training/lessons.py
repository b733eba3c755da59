"""Lessons and multiple-choice questions by rule from tables of facts: `python -m agentrt.training.lessons FOLDER`.

FOLDER/facts/*.yaml -> FOLDER/pages.jsonl (a corpus with a page for each lesson) and FOLDER/questions.jsonl.
"""

import json
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import Field

from agentrt.config.problems import validate
from agentrt.config.strict import PositiveInt, Strict, Text
from agentrt.config.yaml import read_yaml
from agentrt.questions.question import LETTERS

FACTS: Final = "facts"
PAGES: Final = "pages.jsonl"
QUESTIONS: Final = "questions.jsonl"

_BANDS: Final = ((4, "1-4"), (8, "5-8"), (12, "9-12"))
_CHOICES: Final = (2, 2, 3, 2, 4)
"""How many options the questions have in turn: most school questions have two."""


class Kind(Strict):
    """One class of things: what it is called, the rule that tells it, and members of it."""

    name: Text
    rule: Text
    items: Annotated[tuple[Text, ...], Field(min_length=3)]


class Facts(Strict):
    """One lesson. `ask_item` asks for a member of `{kind}`, `ask_kind` for the kind of `{item}`; one may be left out.
    `because` is the solution, with {item}, {kind} and {rule}. `page: false`: the lesson is in no corpus."""

    title: Text
    subject: Text
    topic: Text
    grade: Annotated[PositiveInt, Field(le=12)]
    about: Text
    kinds: Annotated[tuple[Kind, ...], Field(min_length=2)]
    ask_item: Text | None = None
    ask_kind: Text | None = None
    because: Text = "{Item} is {kind}."
    page: bool = True


class FactsFile(Strict):
    lessons: tuple[Facts, ...]


def read_facts(folder: Path) -> tuple[Facts, ...]:
    """Raises ConfigError with file:line:column for what does not fit."""
    files = sorted((folder / FACTS).glob("*.yaml"))
    return tuple(lesson for file in files for lesson in validate(FactsFile, read_yaml(file)).lessons)


def pages(lessons: Sequence[Facts]) -> list[dict[str, Any]]:
    """A row of a corpus for each lesson that has a page."""
    return [{"title": each.title, "sentences": _sentences(each)} for each in lessons if each.page]


def questions(lessons: Sequence[Facts], *, seed: int = 0) -> list[dict[str, Any]]:
    """Two questions for each member of each kind, as far as the lesson asks both; right letters are spread evenly."""
    rows: list[dict[str, Any]] = []
    rng, places = random.Random(seed), dict.fromkeys(range(2, len(LETTERS)), 0)
    for lesson in lessons:
        for posed, right, wrong, solution in _posed(lesson, rng):
            size = min(_CHOICES[len(rows) % len(_CHOICES)], 1 + len(wrong))
            choices = rng.sample(wrong, size - 1)
            index = places[size] % size
            places[size] += 1
            choices.insert(index, right)
            rows.append(
                {
                    "id": f"lesson-{len(rows):04d}",
                    "benchmark": "mini-science",
                    "split": "train",
                    "grade": lesson.grade,
                    "grade_band": next(band for last, band in _BANDS if lesson.grade <= last),
                    "subject": lesson.subject,
                    "topic": lesson.topic,
                    "question": posed,
                    "choices": choices,
                    "hint": "",
                    "lecture": "".join(_sentences(lesson)),
                    "solution": solution,
                    "answer": LETTERS[index],
                    "answer_index": index,
                    "answer_text": right,
                }
            )
    return rows


def write(folder: Path) -> None:
    """Make both files anew. Raises ConfigError as `read_facts` does."""
    lessons = read_facts(folder)
    for name, rows in ((PAGES, pages(lessons)), (QUESTIONS, questions(lessons))):
        (folder / name).write_text(to_jsonl(rows), encoding="utf-8")


def to_jsonl(rows: Sequence[Mapping[str, Any]]) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def _posed(lesson: Facts, rng: random.Random) -> Iterator[tuple[str, str, list[str], str]]:
    """Question, right choice, wrong choices, solution."""
    for kind in lesson.kinds:
        others = [other for other in lesson.kinds if other is not kind]
        for item in kind.items:
            words = {"item": item, "Item": _capital(item), "kind": kind.name, "rule": kind.rule}
            solution = lesson.because.format(**words)
            if lesson.ask_item is not None:
                wrong = [rng.choice(other.items) for other in rng.sample(others, min(3, len(others)))]
                yield lesson.ask_item.format(**words), item, wrong, solution
            if lesson.ask_kind is not None:
                yield lesson.ask_kind.format(**words), kind.name, [other.name for other in others], solution


def _sentences(lesson: Facts) -> list[str]:
    """The page: what it is about, and each kind's rule with its first member as the example."""
    return [lesson.about, *(f" {kind.rule}" for kind in lesson.kinds)]


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


if __name__ == "__main__":
    write(Path(sys.argv[1]))
