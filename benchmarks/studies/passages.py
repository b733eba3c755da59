"""Questions with supplied contexts of a given length, for single-turn QA."""

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from agentrt.errors import DataError
from agentrt.model.tokenizer import Tokenizer
from agentrt.questions.question import Question
from agentrt_tools.corpus import OfflineCorpus

INSTRUCTIONS: Final = "Answer the question from the passages, in as few words as you can.\n\n"


class Prompt(NamedTuple):
    """Token ids: what every prompt begins with, the passages, the question up to where the answer starts."""

    question: Question
    instructions: tuple[int, ...]
    passages: tuple[int, ...]
    ask: tuple[int, ...]

    @property
    def token_ids(self) -> tuple[int, ...]:
        return (*self.instructions, *self.passages, *self.ask)


def all_titles(corpus: Path) -> list[str]:
    """Of a corpus file, for contexts longer than a question's own articles."""
    return [json.loads(line)["title"] for line in corpus.read_text(encoding="utf-8").splitlines() if line.strip()]


def make_prompt(
    question: Question, corpus: OfflineCorpus, titles: Sequence[str], tokenizer: Tokenizer, length: int
) -> Prompt:
    """A prompt of exactly `length` tokens where there is text enough: the pages of the supporting facts, the
    question's other articles, then articles drawn by the question's id; the kept ones shuffled, the last one cut.

    Raises DataError where the supporting pages alone are longer.
    """
    rng = random.Random(question.id)
    instructions = tokenizer.encode(INSTRUCTIONS)
    ask = tokenizer.encode(f"Question: {question.text}\nAnswer:")
    room = length - len(instructions) - len(ask)
    gold = list(dict.fromkeys(fact.title for fact in question.supporting_facts))
    drawn = rng.sample(titles, min(len(titles), 400))
    needed: list[list[int]] = []
    filling: list[list[int]] = []
    for title in dict.fromkeys((*gold, *question.titles, *drawn)):
        article = corpus.article(title)
        if article is None:
            continue
        page = tokenizer.encode(f"{article.title}: {article.text.strip()}\n\n")
        left = room - sum(map(len, needed)) - sum(map(len, filling))
        if title in gold:
            if len(page) > left:
                raise DataError(f"question {question.id}: its supporting pages do not fit into {length} tokens")
            needed.append(page)
        elif left > 0:
            filling.append(page[:left])
        else:
            break
    pages = needed + filling
    rng.shuffle(pages)
    return Prompt(question, tuple(instructions), tuple(token for page in pages for token in page), tuple(ask))
