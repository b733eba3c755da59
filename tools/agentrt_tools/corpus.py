"""The offline corpus: articles by title, by BM25 over title and text, and by being mentioned."""

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import cached_property
from pathlib import Path
from typing import Final
from weakref import WeakValueDictionary

from platformdirs import user_cache_path

from agentrt_tools.corpus_file import Article
from agentrt_tools.corpus_index import connect, ensure_index
from agentrt_tools.mentions import MentionIndex
from agentrt_tools.query import match_query
from agentrt_tools.titles import clean_title, fold, loose_key

TITLE_WEIGHT: Final = 4.0  # of a title hit against one in the text; flat between 3 and 6 on HotpotQA
SIMILAR_TITLE_WEIGHT: Final = 20.0  # when a page of that name was asked for


class OfflineCorpus:
    """A read-only corpus that any number of threads may ask. Make one with `open_corpus`.

    Each question opens the index anew: that takes well under a millisecond, and leaves nothing to lock or close.
    """

    def __init__(self, index: Path) -> None:
        self.index = index

    def __len__(self) -> int:
        (number,) = self._rows("SELECT count(*) FROM article")[0]
        return int(number)

    def titles(self) -> Iterator[str]:
        """All titles, in the order of the corpus file."""
        return (str(title) for (title,) in self._rows("SELECT title FROM article ORDER BY id"))

    def article(self, title: str) -> Article | None:
        """The page of that name; else the one whose name differs in case, blanks, quotes or entities only;
        else in punctuation and accents, if there is just one such page."""
        for column, value in (("title", clean_title(title)), ("folded", fold(title)), ("loose", loose_key(title))):
            found = value and self._rows(
                f"SELECT title, sentences FROM article WHERE {column} = ? ORDER BY id LIMIT 2", (value,)
            )
            if found and (len(found) == 1 or column != "loose"):
                return _article(found[0])
        return None

    def search(self, query: str, k: int) -> list[Article]:
        """The `k` best articles for the words of `query`, title hits above text hits; [] without a word.

        A page that bears the query as its name comes first.
        """
        ranked = self._ranked(query, k, TITLE_WEIGHT)
        named = self.article(query)
        if named is not None:
            ranked = [named, *(article for article in ranked if article.title != named.title)]
        return ranked[:k]

    def similar(self, title: str, k: int) -> list[str]:
        """Titles of up to `k` articles that somebody who asked for `title` may mean."""
        return [article.title for article in self._ranked(title, k, SIMILAR_TITLE_WEIGHT)]

    def mentions(self, text: str) -> list[str]:
        """Titles that `text` mentions, in order; see MentionIndex."""
        return self._mention_index.find(text)

    def rank(self, titles: Sequence[str], question: str) -> list[str]:
        """`titles` by how well their articles match the words of `question`, the others after them as given."""
        query = match_query(question)
        if query is None or len(titles) < 2:
            return list(titles)
        # the unary plus keeps SQLite from asking FTS5 once a title
        rows = self._rows(
            "SELECT article.title FROM words JOIN article ON article.id = words.rowid WHERE words MATCH ? "
            "AND +words.rowid IN (SELECT id FROM article WHERE title IN (SELECT value FROM json_each(?))) "
            "ORDER BY bm25(words, ?, 1.0), words.rowid",
            (query, json.dumps(list(titles)), TITLE_WEIGHT),
        )
        return list(dict.fromkeys([*(str(title) for (title,) in rows), *titles]))

    @cached_property
    def _mention_index(self) -> MentionIndex:
        return MentionIndex(self.titles())

    def _ranked(self, query: str, k: int, title_weight: float) -> list[Article]:
        match = match_query(query)
        if match is None:
            return []
        rows = self._rows(
            "SELECT title, sentences FROM article JOIN "
            "(SELECT rowid AS hit, bm25(words, ?, 1.0) AS score FROM words WHERE words MATCH ? "
            "ORDER BY score, hit LIMIT ?) ON id = hit ORDER BY score, hit",
            (title_weight, match, k),
        )
        return [_article(row) for row in rows]

    def _rows(self, sql: str, values: Sequence[str | int | float] = ()) -> list[tuple[str, ...]]:
        with closing(connect(self.index)) as connection:
            return connection.execute(sql, values).fetchall()


# Not state: one object per immutable index, for as long as somebody holds it, so that tools share it.
_OPEN: Final[WeakValueDictionary[Path, OfflineCorpus]] = WeakValueDictionary()
_OPENING: Final = threading.Lock()


def open_corpus(path: Path, cache_dir: Path | None = None) -> OfflineCorpus:
    """The corpus in the file `path`, indexed on first use under `cache_dir` (None: the user's cache folder).

    Raises CorpusError for a file that is missing or bad, with file:line and the fix.
    """
    with _OPENING:
        index = ensure_index(path, cache_dir or user_cache_path("agentrt") / "corpora").absolute()
        corpus = _OPEN.get(index)
        if corpus is None:
            corpus = _OPEN[index] = OfflineCorpus(index)
        return corpus


def _article(row: tuple[str, ...]) -> Article:
    return Article(row[0], tuple(json.loads(row[1])))
