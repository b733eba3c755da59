"""Read the articles of a corpus file: `{title, sentences}` JSONL, or HotpotQA's own JSON."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from agentrt_tools.text import one_line
from agentrt_tools.titles import clean_title, storable

_EXPECTED = 'expected one JSON object a line, {"title": "…", "sentences": ["…", " …"]}'


class CorpusError(ValueError):
    """A corpus that cannot be used: the message names file, line and fix."""


@dataclass(frozen=True)
class Article:
    """One page. Sentences join to the text: all but the first bring the blank before them."""

    title: str
    sentences: tuple[str, ...]

    @cached_property
    def text(self) -> str:
        """The whole page on one line."""
        return one_line("".join(self.sentences))


def read_articles(path: Path) -> Iterator[Article]:
    """Articles in the order of the file, each title once. Raises CorpusError at the first bad row.

    A file that starts with "[" is HotpotQA's own JSON (a list of questions with
    `context: [[title, [sentences]], ...]`), where a paragraph may come with many questions; the first is
    taken. In JSONL two rows with one title must agree.
    """
    try:
        with path.open("rb") as file:
            head = file.read(4096).lstrip(b"\xef\xbb\xbf").lstrip()
    except OSError as error:
        raise CorpusError(f"{path}: cannot read the corpus: {error.strerror}") from error
    rows = _hotpotqa_json(path) if head.startswith(b"[") else _jsonl(path)
    seen: dict[str, tuple[str, int]] = {}
    for place, article, may_differ in rows:
        first_place, first_hash = seen.setdefault(article.title, (place, hash(article.sentences)))
        if first_place == place:
            yield article
        elif not may_differ and first_hash != hash(article.sentences):
            raise CorpusError(f"{place}: {article.title!r} was {first_place} with other text; keep one of them")
    if not seen:
        raise CorpusError(f"{path}:1: the corpus holds no article; {_EXPECTED}")


def _jsonl(path: Path) -> Iterator[tuple[str, Article, bool]]:
    with path.open("rb") as file:
        for number, raw in enumerate(file, 1):
            place = f"{path}:{number}"
            try:
                line = raw.decode("utf-8-sig" if number == 1 else "utf-8").strip()
                row = json.loads(line) if line else None
            except (ValueError, RecursionError) as error:
                raise CorpusError(f"{place}: not JSONL ({_reason(error)}); {_EXPECTED}") from error
            if line:
                yield place, _from_row(row, place), False


def _from_row(row: Any, place: str) -> Article:
    if not isinstance(row, dict):
        raise CorpusError(f"{place}: a {_kind(row)}, not an object; {_EXPECTED}")
    missing = [key for key in ("title", "sentences") if key not in row]
    if missing:
        found = ", ".join(sorted(map(str, row))[:8]) or "none"
        hint = "; this looks like a question, name it with --data and the articles with --corpus"
        raise CorpusError(
            f"{place}: no {' and no '.join(missing)}, found {found}; {_EXPECTED}{hint if 'question' in row else ''}"
        )
    return _article(row["title"], row["sentences"], place)


def _hotpotqa_json(path: Path) -> Iterator[tuple[str, Article, bool]]:
    try:
        questions = json.loads(path.read_bytes().decode("utf-8-sig"))
    except json.JSONDecodeError as error:
        raise CorpusError(
            f"{path}:{error.lineno}: not JSON ({error.msg}); starts with '[', so HotpotQA's own JSON was expected"
        ) from error
    except UnicodeDecodeError as error:
        raise CorpusError(f"{path}:1: not UTF-8 ({_reason(error)}); save the file as UTF-8") from error
    for number, question in enumerate(questions, 1):
        context = question.get("context") if isinstance(question, dict) else None
        if not isinstance(context, list):
            raise CorpusError(
                f"{path}:1: entry {number} has no list `context`; HotpotQA's JSON has "
                '[{"context": [["title", ["sentence", …]], …]}, …]; else write one {"title", "sentences"} object a line'
            )
        for index, paragraph in enumerate(context, 1):
            place = f"{path}:1: entry {number}, paragraph {index}"
            if not isinstance(paragraph, list) or len(paragraph) != 2:
                raise CorpusError(f'{place}: expected ["title", ["sentence", …]]')
            if paragraph[1] != []:  # HotpotQA has a few paragraphs without text
                yield place, _article(paragraph[0], paragraph[1], place), True


def _article(title: Any, sentences: Any, place: str) -> Article:
    if not isinstance(title, str) or not clean_title(title):
        raise CorpusError(f"{place}: title is {title!r}; give the article a name that is not blank")
    if not isinstance(sentences, list) or not all(isinstance(sentence, str) for sentence in sentences):
        raise CorpusError(f"{place}: sentences of {title!r} must be a list of strings, one a sentence")
    kept = [storable(sentence) for sentence in sentences if sentence.strip()]
    if not kept:
        raise CorpusError(f"{place}: {title!r} has no sentences; give at least one or remove the row")
    if not any(sentence[0].isspace() for sentence in kept[1:]):
        kept[1:] = [f" {sentence}" for sentence in kept[1:]]
    return Article(clean_title(title), tuple(kept))


def _kind(value: Any) -> str:
    return {list: "list", str: "string", type(None): "null", bool: "boolean"}.get(type(value), "number")


def _reason(error: ValueError | RecursionError) -> str:
    if isinstance(error, UnicodeDecodeError):
        return f"byte {error.start} is not UTF-8"
    if isinstance(error, json.JSONDecodeError):
        return f"column {error.colno}: {error.msg}"
    return str(error)
