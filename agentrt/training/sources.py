"""Questions whose way to the answer is known, read for training: what can be used, and what cannot and why."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, NamedTuple

from agentrt.errors import UsageError
from agentrt.questions.datasets import BENCHMARKS, UnusableRowError, parse_row
from agentrt.questions.question import LETTERS, Question
from agentrt.questions.rows import RawRow, read_rows
from agentrt_tools.corpus import OfflineCorpus
from agentrt_tools.text import one_line
from agentrt_tools.titles import clean_title

_DEFAULT: Final = "hotpotqa"
"""The benchmark of a row that names none."""

POLAR = ("yes", "no")
"""Answers that need not be found on a page."""


class Fact(NamedTuple):
    """One supporting sentence, on one line, and the page it stands on."""

    title: str
    sentence: str


@dataclass(frozen=True)
class GoldQuestion:
    """A question whose way to the answer is known. `facts` are in the order of the source, at least one."""

    id: str
    question: str
    answer: str
    kind: Literal["bridge", "comparison"]
    facts: tuple[Fact, ...]
    place: str = ""
    """"file:line" of its row; "" if it was not read from a file."""

    @property
    def titles(self) -> tuple[str, ...]:
        """The gold pages, each once, in the order of the facts."""
        return tuple(dict.fromkeys(fact.title for fact in self.facts))

    @property
    def polar(self) -> bool:
        return self.answer.lower() in POLAR


@dataclass(frozen=True)
class LessonQuestion:
    """A multiple-choice question with its solution, on one line each. `question` is the whole as it is posed, `stem`
    without context and options. `page` is the title of the page that is its lecture, None if the corpus has none."""

    id: str
    question: str
    stem: str
    choices: tuple[str, ...]
    letter: str
    page: str | None
    solution: str
    place: str = ""

    @property
    def letters(self) -> str:
        return LETTERS[: len(self.choices)]

    def choice(self, letter: str) -> str:
        return self.choices[LETTERS.index(letter)]


TaughtQuestion = GoldQuestion | LessonQuestion


class Skipped(NamedTuple):
    """A question that gives no trajectory. A reason reads "what is wrong: the value", the value left out if none.

    `place` is "file:line" of its row, "" where only the question is known.
    """

    id: str
    reason: str
    place: str = ""


def read_questions(
    path: Path, corpus: OfflineCorpus, *, split: str | None = None
) -> tuple[list[TaughtQuestion], list[Skipped]]:
    """Questions of any benchmark file with supporting facts, or with options and a solution; see `agentrt.questions`.

    `split` keeps only rows of that split; rows that name none are kept. Skipped by name are a line that is not JSON,
    and a row that does not fit, is of an unknown benchmark, has neither facts nor a solution, or names a page the
    corpus lacks or an answer that no gold page holds. Raises UsageError for a file that cannot be opened or has no
    question of the split, DataError for one that holds no rows.
    """
    usable: list[TaughtQuestion] = []
    skipped: list[Skipped] = []
    splits: Counter[str] = Counter()

    def unreadable(place: str, why: str) -> None:
        skipped.append(Skipped(f"{path.name}:{place.rpartition(':')[2]}", f"it is not JSON: {why}", place))

    for row in read_rows(path, unreadable=unreadable):
        named = row.value.get("benchmark", _DEFAULT) if isinstance(row.value, dict) else _DEFAULT
        try:
            question = parse_row(_known(row, named), row)
        except UnusableRowError as error:
            skipped.append(Skipped(error.id, error.reason, row.place))
            continue
        if question is None:
            continue
        splits[question.split] += 1
        if split is not None and question.split not in (split, ""):
            continue
        gold = (_lesson if question.choices else _gold)(question, corpus, row.place)
        if isinstance(gold, str):
            skipped.append(Skipped(question.id, gold, row.place))
        else:
            usable.append(gold)
    if not usable and not skipped:
        held = ", ".join(f"{name} ({count})" for name, count in sorted(splits.items())) or "none that can be used"
        raise UsageError(
            f"{path}: no question{f' of split {split!r}' if split else ''}; the questions in it: {held}. Give a file "
            "of that split, or take `split` out of its rows"
        )
    return usable, skipped


def _known(row: RawRow, named: object) -> str:
    """Raises UnusableRowError."""
    if not isinstance(named, str) or named not in BENCHMARKS:
        raise UnusableRowError(row, "benchmark", f"{named!r} is none of {', '.join(BENCHMARKS)}", "name one of them")
    return named


def _gold(question: Question, corpus: OfflineCorpus, place: str) -> GoldQuestion | str:
    """The question with the sentences of its facts, or why it cannot be used."""
    if not question.supporting_facts:
        return "it has no supporting facts"
    found: list[Fact] = []
    for fact in question.supporting_facts:
        title = clean_title(fact.title)
        article = corpus.article(title)
        if article is None:
            return f"its page is not in the corpus: {title!r}"
        if fact.sent_id < len(article.sentences):  # HotpotQA has facts beyond the paragraph's end
            found.append(Fact(article.title, one_line(article.sentences[fact.sent_id])))
    if not found:
        return "its supporting sentences are not on their pages"
    answer = one_line(question.answer)
    gold = GoldQuestion(
        id=question.id,
        question=one_line(question.text),
        answer=answer,
        kind="comparison" if question.kind == "comparison" else "bridge",
        facts=tuple(found),
        place=place,
    )
    if not gold.polar and not _on_a_page(answer, gold.titles, corpus):
        return f"its answer is on none of its pages: {answer!r}"
    return gold


def _lesson(question: Question, corpus: OfflineCorpus, place: str) -> LessonQuestion | str:
    if question.lesson is None:
        return "it has no solution"
    return LessonQuestion(
        id=question.id,
        question=one_line(question.text),
        stem=one_line(question.stem),
        choices=tuple(map(one_line, question.choices)),
        letter=question.letter,
        page=_page_of(one_line(question.lesson.lecture), corpus),
        solution=one_line(question.lesson.solution),
        place=place,
    )


def _page_of(lecture: str, corpus: OfflineCorpus) -> str | None:
    """The title of the article with this text."""
    found = (article.title for article in corpus.search(lecture, 5) if one_line(article.text) == lecture)
    return next(found, None)


def _on_a_page(answer: str, titles: Iterable[str], corpus: OfflineCorpus) -> bool:
    texts = (f"{article.title}. {article.text}" for title in titles if (article := corpus.article(title)))
    return any(find_span(text, answer) for text in texts)


def find_span(text: str, answer: str) -> str | None:
    """`answer` as `text` spells it: whole words, any case, without final punctuation or a leading article."""
    wanted = answer.rstrip(" .,;:").strip()
    for form in dict.fromkeys((wanted, _without_article(wanted))):
        at = text.lower().find(form.lower()) if form else -1
        while at >= 0:
            end = at + len(form)
            if not (at > 0 and text[at - 1].isalnum()) and not (end < len(text) and text[end].isalnum()):
                return text[at:end]
            at = text.lower().find(form.lower(), at + 1)
    return None


def _without_article(text: str) -> str:
    first, _, rest = text.partition(" ")
    return rest if first.lower() in ("a", "an", "the") else text
