"""How far the tools lead without a model: `python -m benchmarks.navigation --questions FILE --corpus FILE`.

A search with the question, the best listed gold page, then its ranked links: is the other gold page among them, and
where? What a plan that follows the ranking would reach.
"""

import argparse
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from agentrt.config.team import Team
from agentrt.questions.datasets import load_questions
from agentrt.questions.question import Question
from agentrt_tools.corpus import OfflineCorpus, open_corpus
from agentrt_tools.offline import OfflinePage, OfflineSearch
from agentrt_tools.titles import clean_title


class Walk(NamedTuple):
    """Of one question with two gold pages or more. Places count from 1; None: not there.

    listed: of the first gold page in the list that the search shows. link: of the next gold page among its links; None
    too where no gold page was listed. mentioned: whether the page names the next one at all.
    """

    kind: str
    listed: int | None
    mentioned: bool
    link: int | None


def walk(corpus: OfflineCorpus, question: Question, *, k: int, links: int) -> Walk | None:
    """What tools with these options show; None for a question with fewer than two gold pages in the corpus."""
    titles = dict.fromkeys(clean_title(fact.title) for fact in question.supporting_facts)
    gold = [article.title for title in titles if (article := corpus.article(title)) is not None]
    if len(gold) < 2:
        return None
    hits = _titles(OfflineSearch(corpus, k=k)(question.text, {}).facts["results"])
    listed = next((place for place, title in enumerate(hits, start=1) if title in gold), None)
    if listed is None:
        return Walk(question.kind, None, False, None)
    page = OfflinePage(corpus, links=links)(hits[listed - 1], {}, question=question.text)
    others = {title for title in gold if title != hits[listed - 1]}
    ranked, mentioned = _titles(page.facts["links"]), _titles(page.facts["mentioned"])
    link = next((place for place, title in enumerate(ranked, start=1) if title in others), None)
    return Walk(question.kind, listed, not others.isdisjoint(mentioned), link)


def summarise(walks: Iterable[Walk]) -> dict[str, dict[str, int]]:
    """Counts by kind of question; `first` of `listed` is what following the first link reaches."""
    counts: dict[str, dict[str, int]] = {}
    for each in walks:
        found = counts.setdefault(each.kind, dict.fromkeys(("questions", "listed", "mentioned", "linked", "first"), 0))
        found["questions"] += 1
        found["listed"] += each.listed is not None
        found["mentioned"] += each.mentioned
        found["linked"] += each.link is not None
        found["first"] += each.link == 1
    return counts


def _titles(value: Any) -> list[str]:
    return [str(title) for title in value]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--questions", type=Path, required=True, help="with supporting facts, in HotpotQA's layout")
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--limit", type=int, default=200, help="the first so many questions")
    parser.add_argument("--team", default="search", help="whose tools' options are used")
    arguments = parser.parse_args()
    options = {tool.use: tool.options for tool in Team.load(arguments.team, need_adapters=False).tools.values()}
    k, links = (int(options[use].get(name, 0)) for use, name in (("offline.search", "k"), ("offline.page", "links")))
    corpus = open_corpus(arguments.corpus)
    asked = load_questions("hotpotqa", arguments.questions)[: arguments.limit]
    walks = [found for question in asked if (found := walk(corpus, question, k=k, links=links)) is not None]
    print(json.dumps({"team": arguments.team, "k": k, "links": links, "by_kind": summarise(walks)}))


if __name__ == "__main__":
    main()
