"""Build the SQLite index of a corpus file once, and keep it in a cache folder under its content hash.

The index is never changed after it is in place, so any number of processes and threads may read it.
"""

import hashlib
import json
import os
import sqlite3
import tempfile
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Final

from agentrt_tools.corpus_file import Article, CorpusError, read_articles
from agentrt_tools.titles import fold, loose_key

_FORMAT: Final = 1  # raise when the tables or the keys change: old indexes are then not found

# Porter stemming finds "directed" for "director" and plurals.
_SCHEMA: Final = """
CREATE TABLE article (id INTEGER PRIMARY KEY, title TEXT, folded TEXT, loose TEXT, sentences TEXT);
CREATE VIRTUAL TABLE words USING fts5(
    title, body, content='', tokenize="porter unicode61 remove_diacritics 2"
);
"""
_INDEXES: Final = """
CREATE UNIQUE INDEX by_title ON article (title);
CREATE INDEX by_folded ON article (folded);
CREATE INDEX by_loose ON article (loose);
INSERT INTO words (words) VALUES ('optimize');
"""


def ensure_index(corpus: Path, cache_dir: Path) -> Path:
    """The index file of `corpus` in `cache_dir`, built if it is not there or damaged.

    Written beside its place and moved there whole. Raises CorpusError for a bad corpus, and for a cache
    folder that cannot be written.
    """
    digest = _content_hash(corpus)
    index = cache_dir / f"corpus-{digest[:16]}.sqlite"
    if _is_whole(index):
        return index
    try:
        cache_dir.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f"{index.stem}-", suffix=".partial", dir=cache_dir)
        os.close(handle)
    except OSError as error:
        raise CorpusError(
            f"cannot keep the index of {corpus} in {cache_dir} ({error.strerror}); name a cache folder you may write"
        ) from error
    partial = Path(name)
    try:
        _build(partial, read_articles(corpus))
        if _content_hash(corpus) != digest:
            raise CorpusError(f"{corpus}: the file changed while it was read; try again")
        partial.replace(index)
    except (OSError, sqlite3.OperationalError) as error:
        raise CorpusError(f"cannot write the index of {corpus} in {cache_dir}: {error}") from error
    finally:
        partial.unlink(missing_ok=True)
    return index


def connect(index: Path) -> sqlite3.Connection:
    """Open an index for reading. No locks are taken: the file does not change."""
    return sqlite3.connect(f"{index.absolute().as_uri()}?mode=ro&immutable=1", uri=True)


def _build(path: Path, articles: Iterable[Article]) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;" + _SCHEMA)
        connection.execute("BEGIN")
        for row_id, article in enumerate(articles, 1):
            title = article.title
            sentences = json.dumps(article.sentences, ensure_ascii=False)
            connection.execute(
                "INSERT INTO article VALUES (?, ?, ?, ?, ?)",
                (row_id, title, fold(title), loose_key(title), sentences),
            )
            connection.execute("INSERT INTO words (rowid, title, body) VALUES (?, ?, ?)", (row_id, title, article.text))
        connection.execute("COMMIT")
        connection.executescript(f"{_INDEXES} PRAGMA user_version = {_FORMAT};")
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def _is_whole(index: Path) -> bool:
    if not index.exists():
        return False
    try:
        with closing(connect(index)) as connection:
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            (first,) = connection.execute("SELECT count(*) FROM article WHERE id = 1").fetchone()
    except sqlite3.DatabaseError:
        return False
    return bool(version == _FORMAT and first == 1)


def _content_hash(corpus: Path) -> str:
    try:
        with corpus.open("rb") as file:
            content = hashlib.file_digest(file, "sha256").digest()
    except OSError as error:
        raise CorpusError(f"{corpus}: cannot read the corpus: {error.strerror}") from error
    return hashlib.sha256(b"%d:%b" % (_FORMAT, content)).hexdigest()
