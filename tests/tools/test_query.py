import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentrt_tools import OfflineCorpus
from agentrt_tools.query import MAX_TERMS, match_query, without_words


def test_stop_words_of_a_question_are_left_out() -> None:
    assert match_query("Who is the director of The Glass Tide?") == '"director" OR "glass" OR "tide"'


def test_a_query_of_stop_words_keeps_them() -> None:
    assert match_query("The Who") == '"the" OR "who"'


@pytest.mark.parametrize("text", ["", "  ", "?!", '"""', "\x00", "\ud800", "()*:^-"])
def test_text_without_words_is_no_query(text: str) -> None:
    assert match_query(text) is None


@pytest.mark.parametrize(
    ("text", "others", "left"),
    [
        ("Who wrote The Glass Tide?", ["Glass Tide (film)"], "who wrote the"),
        ("Who wrote The Glass Tide?", ["the", "WROTE it"], "who glass tide"),
        ("Who is in Jaws?", ["Jaws"], "Who is in Jaws?"),
        ("Jaws", [], "jaws"),
        ("", ["Jaws"], ""),
    ],
)
def test_words_of_other_texts_are_left_out_unless_nothing_telling_is_left(
    text: str, others: list[str], left: str
) -> None:
    assert without_words(text, others) == left


def test_a_long_query_is_cut() -> None:
    query = match_query(" ".join(f"w{n}" for n in range(500)))
    assert query is not None
    assert query.count(" OR ") == MAX_TERMS - 1


SYNTAX = ['"', "'", "(", ")", "*", ":", "^", "-", "+", "NEAR", "AND", "NOT", "title", "\x00", "port", "\ud800"]
ODD = st.one_of(
    st.text(max_size=60),
    st.text(alphabet=st.characters(codec=None, categories=None), max_size=20),
    st.lists(st.sampled_from(SYNTAX)).map(" ".join),
)


@pytest.fixture(scope="module")
def fts() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute('CREATE VIRTUAL TABLE words USING fts5(title, tokenize="porter unicode61")')
        yield connection


@given(ODD)
@settings(deadline=None)
def test_no_text_makes_a_query_that_fts5_refuses(fts: sqlite3.Connection, text: str) -> None:
    query = match_query(text)
    if query is not None:
        fts.execute("SELECT * FROM words WHERE words MATCH ?", (query,)).fetchall()


@given(ODD)
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_corpus_answers_any_text(corpus: OfflineCorpus, text: str) -> None:
    corpus.search(text, 3)
    corpus.article(text)
    corpus.similar(text, 3)
    corpus.mentions(text)
    assert corpus.rank(["Port", "Port Ellow", text], text)
