"""The benchmarks by name, and their questions: those shipped with the package, or those of a file."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from agentrt.builtin import configs_dir
from agentrt.errors import DataError, UsageError
from agentrt.questions.layouts import hotpot_question, science_question
from agentrt.questions.question import Question, SupportingFact
from agentrt.questions.rows import RawRow, read_rows

__all__ = [
    "BENCHMARKS",
    "Benchmark",
    "Question",
    "SupportingFact",
    "UnusableRowError",
    "load_questions",
    "parse_row",
]


class UnusableRowError(DataError):
    """A row that is no question of its benchmark. `id` is the row's own, or its place; `reason` what is
    wrong, as "its FIELD cannot be used: why"."""

    def __init__(self, row: RawRow, field: str, why: str, needs: str) -> None:
        super().__init__(f"{row.place}: {field}: {why}; {needs}" if field else f"{row.place}: {why}")
        named = row.value.get("id") or row.value.get("_id") if isinstance(row.value, dict) else None
        self.id = str(named or row.name or row.place)
        self.reason = f"its {field or 'row'} cannot be used: {why}"


@dataclass(frozen=True)
class Benchmark:
    """How a benchmark's rows are read, what they must hold, and the file it ships with in configs/ ("" if none)."""

    layout: Callable[[str, str, dict[str, Any], bool], Question | None]
    needs: str
    shipped: str = ""


_HOTPOT: Final = "id, question and answer, as HotpotQA's JSON with answers does"
_SCIENCE: Final = "id, question, choices, answer and grade, as ScienceQA's problems.json does"

BENCHMARKS: Final[dict[str, Benchmark]] = {
    "mini": Benchmark(hotpot_question, _HOTPOT, shipped="mini/questions.jsonl"),
    "mini-science": Benchmark(science_question, _SCIENCE, shipped="mini/science.jsonl"),
    "hotpotqa": Benchmark(hotpot_question, _HOTPOT),
    "scienceqa": Benchmark(science_question, _SCIENCE),
}


def load_questions(
    benchmark: str, data: Path | None = None, split: str | None = "auto", *, captions: bool = True
) -> list[Question]:
    """The questions of a benchmark, in the order of its file.

    data: a file to read in place of the shipped one; needed where the benchmark ships none.
    split: rows of this split, and rows that name none; None for all. "auto" is "eval" of what is shipped, and
        everything in a file that was named, since such a file usually is one split.
    captions: put an image's caption into its question; False leaves it to the team's tool (`scienceqa.image`).
    ScienceQA's questions about an image are left out unless the row has a caption.

    Raises UsageError for an unknown benchmark or split and for a file that is missing, DataError (file:line) for a
    row that cannot be used.
    """
    spec = BENCHMARKS.get(benchmark)
    if spec is None:
        raise UsageError(f"unknown benchmark {benchmark!r}; choose one of {', '.join(BENCHMARKS)}")
    if data is None and not spec.shipped:
        raise UsageError(
            f"{benchmark} is not shipped with agentrt; name a file (--data FILE) whose rows hold {spec.needs}"
        )
    path = data if data is not None else configs_dir() / spec.shipped
    if split == "auto":
        split = "eval" if data is None else None

    questions: dict[str, Question] = {}
    for row in read_rows(path):
        question = parse_row(benchmark, row, captions=captions)
        if question is None:
            continue
        if question.id in questions:
            raise DataError(f"{row.place}: id {question.id!r} occurs twice; give each question its own")
        questions[question.id] = question

    chosen = [q for q in questions.values() if split is None or q.split in (split, "")]
    if not chosen:
        splits = Counter(q.split for q in questions.values())
        held = ", ".join(f"{name} ({count})" for name, count in sorted(splits.items())) or "no usable question"
        raise UsageError(f"{path}: no question of split {split!r}; the file holds {held}")
    return chosen


def parse_row(benchmark: str, row: RawRow, *, captions: bool = True) -> Question | None:
    """The question in a row, or None for one that needs an image; `captions` may stand in for one.

    Raises DataError (file:line) for a row of another benchmark, UnusableRowError for one that is no object or whose
    values do not fit.
    """
    spec = BENCHMARKS[benchmark]
    if not isinstance(row.value, dict):
        raise UnusableRowError(row, "", f"a row must be a JSON object, not {type(row.value).__name__}", "")
    named = row.value.get("benchmark", benchmark)
    if named != benchmark:
        raise DataError(f"{row.place}: a row of benchmark {named!r}, read as {benchmark!r}; choose benchmark {named!r}")
    try:
        return spec.layout(benchmark, row.name, row.value, captions)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        field = ".".join(str(part) for part in first["loc"]) or "row"
        raise UnusableRowError(row, field, first["msg"].lower(), f"a row of {benchmark} holds {spec.needs}") from error
    except ValueError as error:
        raise UnusableRowError(row, "", str(error), "") from error
