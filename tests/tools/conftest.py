"""A corpus of a few invented pages, small enough to know by heart."""

import json
from pathlib import Path

import pytest

from agentrt_tools import OfflineCorpus, open_corpus

PAGES: dict[str, list[str]] = {
    "Mara Quill": [
        "Mara Quill is a film director born in Port Ellow.",
        " She directed The Glass Tide in 1987.",
        " Critics of The Glass Tide praised Quill's use of colour.",
    ],
    "The Glass Tide (film)": [
        "The Glass Tide is a 1987 drama directed by Mara Quill.",
        " It was shot in Port Ellow and in Brant &amp; Sons' old shipyard, now run by Brant & Sons.",
    ],
    "Port Ellow": ["Port Ellow is a harbour town.", " Its mayor is Dr. J. Tarn."],
    "Brant &amp; Sons": ["Brant & Sons was a shipbuilder.", " It closed in 1962."],
    "Port": ["A port is a place for ships.", " Harbour is another word."],
    "1987 (song)": ["1987 is a song by The Ellows."],
    "Café Zoë": ["Café Zoë is a meeting place in Port Ellow."],
}


@pytest.fixture
def corpus_file(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.jsonl"
    rows = ({"id": str(n), "title": title, "sentences": text} for n, (title, text) in enumerate(PAGES.items()))
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.fixture
def corpus(corpus_file: Path, tmp_path: Path) -> OfflineCorpus:
    return open_corpus(corpus_file, tmp_path / "cache")


@pytest.fixture(scope="session")
def hotpotqa(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> OfflineCorpus:
    return open_corpus(shared_data / "hotpotqa" / "corpus.jsonl", tmp_path_factory.mktemp("corpora"))
