import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrt_tools import split_sentences


@pytest.mark.parametrize(
    "sentences",
    [
        ["Dr. Tarn met Mrs. Quill.", " They spoke."],
        ["The U.S. Navy came.", " It left the U.S.", " The port was empty."],
        ["J. R. R. Tolkien wrote it.", " Malcolm X.", " He read it."],
        ["He was No. 5 on the list.", ' "No."', " She left."],
        ["It cost 3.5 million.", " 40 people paid."],
        ["Martin Luther King Jr. spoke.", " Acme Inc. paid on Jan. 3."],
        ["Really?!", " Yes (it was.)", " Fine …"],
        ["see example.com for more. and so on"],
        ["It was on St. Mary's Rd.", " Émile left."],
        ["No end"],
    ],
)
def test_sentences_are_split_where_a_reader_would(sentences: list[str]) -> None:
    assert split_sentences("".join(sentences)) == sentences


def test_nothing_has_no_sentences() -> None:
    assert split_sentences("") == []


@given(st.text(alphabet='aB .?!"\n(\u20191', max_size=80))
@settings(deadline=None)
def test_sentences_join_to_the_text(text: str) -> None:
    parts = split_sentences(text)
    assert "".join(parts) == text
    assert all(parts)


def test_wikipedia_pages_are_split_as_hotpotqa_splits_them(shared_data: Path) -> None:
    with (shared_data / "hotpotqa" / "corpus.jsonl").open(encoding="utf-8") as file:
        pages = [json.loads(line)["sentences"] for _, line in zip(range(2000), file, strict=False)]
    same = sum([s.strip() for s in split_sentences("".join(page))] == [s.strip() for s in page] for page in pages)
    assert same / len(pages) > 0.92  # the rest are mostly quotes that HotpotQA leaves with the sentence before
