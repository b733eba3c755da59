import json
from pathlib import Path

import pytest

from agentrt_tools import CorpusError, read_articles

GOOD = '{"title": "A", "sentences": ["One.", " Two."]}'


def read(tmp_path: Path, text: str | bytes) -> list[tuple[str, tuple[str, ...]]]:
    path = tmp_path / "c.jsonl"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return [(article.title, article.sentences) for article in read_articles(path)]


def test_jsonl_gives_title_and_sentences_and_ignores_the_rest(tmp_path: Path) -> None:
    assert read(tmp_path, '\ufeff{"id": 1, "title": " A &amp; B", "sentences": ["One.", "", " Two."]}\n\n') == [
        ("A & B", ("One.", " Two."))
    ]


def test_sentences_without_blanks_between_get_them(tmp_path: Path) -> None:
    assert read(tmp_path, '{"title": "A", "sentences": ["One.", "Two."]}') == [("A", ("One.", " Two."))]


def test_the_text_of_a_page_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    path.write_text('{"title": "A", "sentences": ["One\\u00a0.\\n", " Two."]}')
    assert next(read_articles(path)).text == "One . Two."


def test_hotpotqas_own_json_gives_each_paragraph_once(tmp_path: Path) -> None:
    questions = [
        {"question": "q", "context": [["A", ["One.", " Two."]], ["Empty", []]]},
        {"question": "r", "context": [["A", ["Other."]], ["B", ["Three."]]]},
    ]
    assert read(tmp_path, json.dumps(questions, indent=1)) == [("A", ("One.", " Two.")), ("B", ("Three.",))]


def test_the_same_row_twice_is_one_article(tmp_path: Path) -> None:
    assert len(read(tmp_path, f"{GOOD}\n{GOOD}")) == 1


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("plain text\n", 1, "not JSONL"),
        (f"{GOOD}\n{{bad", 2, "not JSONL"),
        (f"{GOOD}\n[1]", 2, "a list, not an object"),
        (f"{GOOD}\n3", 2, "a number, not an object"),
        (GOOD.encode() + b"\n\xff\xfe", 2, "byte 0 is not UTF-8"),
        ('{"name": "A"}', 1, "no title and no sentences, found name"),
        ('{"title": "A", "text": "x"}', 1, "no sentences, found text, title"),
        ('{"question": "q", "answer": "a"}', 1, "looks like a question"),
        ('{"title": 3, "sentences": ["x"]}', 1, "title is 3"),
        ('{"title": "&nbsp;", "sentences": ["x"]}', 1, "not blank"),
        ('{"title": "A", "sentences": "x"}', 1, "list of strings"),
        ('{"title": "A", "sentences": ["x", null]}', 1, "list of strings"),
        ('{"title": "A", "sentences": [" "]}', 1, "has no sentences"),
        (f'{GOOD}\n{{"title": "A", "sentences": ["Other."]}}', 2, "keep one of them"),
        ("", 1, "holds no article"),
        ("\n\n", 1, "holds no article"),
        ("[1, 2]", 1, "entry 1 has no list `context`"),
        ('[{"context": [["A"]]}]', 1, "entry 1, paragraph 1"),
        ("[\n{]", 2, "HotpotQA's own JSON was expected"),
        (b'["\xff"]', 1, "not UTF-8"),
        ('{"title": "A", "sentences": ' + "1" * 5000 + "}", 1, "not JSONL"),
    ],
)
def test_a_bad_row_is_named_by_file_and_line(tmp_path: Path, text: str | bytes, line: int, says: str) -> None:
    with pytest.raises(CorpusError) as caught:
        read(tmp_path, text)
    assert str(caught.value).startswith(f"{tmp_path / 'c.jsonl'}:{line}: ")
    assert says in str(caught.value)


def test_a_missing_file_is_a_corpus_error(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="No such file"):
        list(read_articles(tmp_path / "none.jsonl"))
