"""Questions with supporting facts, read for training: what can be used, and what cannot and why."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from agentrt.errors import DataError
from agentrt_tools.corpus import OfflineCorpus
from agentrt_tools.text import one_line
from agentrt_tools.titles import clean_title

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

    @property
    def titles(self) -> tuple[str, ...]:
        """The gold pages, each once, in the order of the facts."""
        return tuple(dict.fromkeys(fact.title for fact in self.facts))

    @property
    def polar(self) -> bool:
        return self.answer.lower() in POLAR


class Skipped(NamedTuple):
    """A question that gives no trajectory. A reason reads "what is wrong: the value", the value left out if none."""

    id: str
    reason: str


def read_questions(
    path: Path, corpus: OfflineCorpus, *, split: str | None = None
) -> tuple[list[GoldQuestion], list[Skipped]]:
    """HotpotQA-like rows: id, question, answer, type and supporting_facts `[{title, sent_id}]`.

    `split` keeps only rows of that split; rows that name none are kept. Raises DataError for a line that is not JSON;
    a row without facts, with a page the corpus lacks, or with an answer that no gold page holds is skipped by name.
    """
    usable: list[GoldQuestion] = []
    skipped: list[Skipped] = []
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
                if not isinstance(row, dict):
                    raise ValueError(f"a {type(row).__name__}, not an object")
            except ValueError as error:
                raise DataError(f"{path.name}:{number}: not a JSON question ({error})") from error
            if split is not None and row.get("split", split) != split:
                continue
            question = _question(row, corpus)
            if isinstance(question, str):
                skipped.append(Skipped(str(row.get("id", f"{path.name}:{number}")), question))
            else:
                usable.append(question)
    return usable, skipped


def _question(row: dict[str, Any], corpus: OfflineCorpus) -> GoldQuestion | str:
    """The question, or why it cannot be used."""
    missing = [key for key in ("id", "question", "answer") if not str(row.get(key) or "").strip()]
    if missing:
        return f"it has no {', '.join(missing)}"
    facts = row.get("supporting_facts")
    if not facts:
        return "it has no supporting facts"
    found: list[Fact] = []
    for fact in facts:
        title = clean_title(str(fact["title"]))
        article = corpus.article(title)
        if article is None:
            return f"its page is not in the corpus: {title!r}"
        if fact["sent_id"] < len(article.sentences):  # HotpotQA has facts beyond the paragraph's end
            found.append(Fact(article.title, one_line(article.sentences[fact["sent_id"]])))
    if not found:
        return "its supporting sentences are not on their pages"
    answer = one_line(str(row["answer"]))
    question = GoldQuestion(
        id=str(row["id"]),
        question=one_line(row["question"]),
        answer=answer,
        kind="comparison" if row.get("type") == "comparison" else "bridge",
        facts=tuple(found),
    )
    if not question.polar and not _on_a_page(answer, question.titles, corpus):
        return f"its answer is on none of its pages: {answer!r}"
    return question


def _on_a_page(answer: str, titles: Iterable[str], corpus: OfflineCorpus) -> bool:
    texts = (f"{article.title}. {article.text}" for title in titles if (article := corpus.article(title)))
    return any(find_span(text, answer) for text in texts)


def find_span(text: str, answer: str) -> str | None:
    """`answer` as `text` spells it: whole words, any case, without a final full stop or a leading article."""
    wanted = answer.rstrip(".").strip()
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
