"""What a row of HotpotQA and of ScienceQA means: raw JSON -> Question, or what is wrong with it.

Each layout reads the project's own JSONL and the dataset's original JSON alike.
"""

from typing import Annotated, Any

from pydantic import AliasChoices, BaseModel, BeforeValidator, Field, StrictInt, StrictStr, model_validator

from agentrt.questions.question import LETTERS, Lesson, Question, SupportingFact, pose_choice

_Text = Annotated[StrictStr, Field(min_length=1)]


def _optional_text(value: Any) -> Any:
    return "" if value is None else value


_OptionalText = Annotated[StrictStr, BeforeValidator(_optional_text)]


class _Fact(BaseModel):
    title: _Text
    sent_id: Annotated[StrictInt, Field(ge=0)]

    @model_validator(mode="before")
    @classmethod
    def _from_pair(cls, value: Any) -> Any:
        """HotpotQA writes `[title, sent_id]`."""
        if isinstance(value, list) and len(value) == 2:
            return {"title": value[0], "sent_id": value[1]}
        return value


class _Context(BaseModel):
    title: _Text

    @model_validator(mode="before")
    @classmethod
    def _from_pair(cls, value: Any) -> Any:
        """HotpotQA writes `[title, [sentence, ...]]`."""
        if isinstance(value, list) and len(value) == 2:
            return {"title": value[0]}
        return value


class _HotpotRow(BaseModel):
    id: _Text = Field(validation_alias=AliasChoices("id", "_id"))
    split: _OptionalText = ""
    level: _OptionalText = ""
    type: _OptionalText = ""
    question: _Text
    answer: _Text
    supporting_facts: list[_Fact] = []
    context: list[_Context] = []


class _ScienceRow(BaseModel):
    id: _Text
    split: _OptionalText = ""
    grade: StrictInt | StrictStr
    question: _Text
    choices: Annotated[list[_Text], Field(min_length=2, max_length=len(LETTERS))]
    answer: StrictInt | StrictStr
    hint: _OptionalText = ""
    caption: _OptionalText = ""
    lecture: _OptionalText = ""
    solution: _OptionalText = ""


def hotpot_question(benchmark: str, name: str, row: dict[str, Any], captions: bool) -> Question:
    """A HotpotQA row, which has no image; ids of the original JSON get the prefix "hotpot-".

    Raises pydantic's ValidationError (a ValueError).
    """
    read = _HotpotRow.model_validate(row)
    return Question(
        id=read.id if "id" in row else f"hotpot-{read.id}",
        benchmark=benchmark,
        split=read.split,
        group=read.level,
        kind=read.type,
        text=read.question,
        answer=read.answer,
        supporting_facts=tuple(SupportingFact(fact.title, fact.sent_id) for fact in read.supporting_facts),
        titles=tuple(article.title for article in read.context),
    )


def science_question(benchmark: str, name: str, row: dict[str, Any], captions: bool) -> Question | None:
    """A ScienceQA row, or None for one that needs its image; `name` is its key in problems.json.

    captions: whether the caption joins the text; else a tool tells it to who asks.

    Raises ValueError with what to fix.
    """
    read = _ScienceRow.model_validate({"id": f"sqa-{name:0>5}", **row} if name else row)
    if row.get("image") and not read.caption:
        return None
    index = _answer_index(read.answer, len(read.choices))
    if row.get("answer_index", index) != index:
        raise ValueError(f"answer {read.answer!r} is choice {index}, but answer_index is {row['answer_index']!r}")
    if row.get("answer_text", read.choices[index]) != read.choices[index]:
        raise ValueError(f"answer_text is {row['answer_text']!r}, but the choice is {read.choices[index]!r}")
    return Question(
        id=read.id,
        benchmark=benchmark,
        split=read.split,
        group=_grade_band(read.grade),
        kind="choice",
        text=pose_choice(read.question, read.choices, read.hint, read.caption if captions else ""),
        answer=read.choices[index],
        choices=tuple(read.choices),
        hint=read.hint,
        letter=LETTERS[index],
        stem=read.question,
        lesson=Lesson(read.lecture, read.solution) if read.solution.strip() else None,
    )


def _answer_index(answer: int | str, num_choices: int) -> int:
    """A letter (our JSONL) or an index from 0 (problems.json) as an index."""
    index = answer if isinstance(answer, int) else LETTERS.find(answer) if len(answer) == 1 else -1
    if not 0 <= index < num_choices:
        last = LETTERS[num_choices - 1]
        raise ValueError(f"answer {answer!r} names none of the {num_choices} choices; give A to {last}, or an index")
    return index


def _grade_band(grade: int | str) -> str:
    """AutoAct's three bands, from 5 or "grade5"."""
    text = str(grade).removeprefix("grade")
    number = int(text) if text.isascii() and text.isdigit() else 0
    for band, last in (("1-4", 4), ("5-8", 8), ("9-12", 12)):
        if 1 <= number <= last:
            return band
    raise ValueError(f'grade {grade!r} is unknown; give 1 to 12, or "grade1" to "grade12"')
