import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from agentrt_tools import CorpusError
from agentrt_tools.corpus_index import ensure_index


def test_an_index_is_built_once_for_a_content(corpus_file: Path, tmp_path: Path) -> None:
    cache = tmp_path / "deep" / "cache"
    index = ensure_index(corpus_file, cache)
    written = index.stat().st_mtime_ns
    same_content = tmp_path / "copy.jsonl"
    same_content.write_bytes(corpus_file.read_bytes())
    assert ensure_index(same_content, cache) == index
    assert index.stat().st_mtime_ns == written
    assert [path.name for path in cache.iterdir()] == [index.name]


def test_other_content_gets_another_index(corpus_file: Path, tmp_path: Path) -> None:
    before = ensure_index(corpus_file, tmp_path / "cache")
    with corpus_file.open("a", encoding="utf-8") as file:
        file.write('{"title": "New", "sentences": ["New."]}\n')
    assert ensure_index(corpus_file, tmp_path / "cache") != before


@pytest.mark.parametrize("damage", [b"", b"SQLite format 3\x00 and no more", b"\x00" * 5000])
def test_a_damaged_index_is_built_again(corpus_file: Path, tmp_path: Path, damage: bytes) -> None:
    index = ensure_index(corpus_file, tmp_path / "cache")
    whole = index.read_bytes()
    index.write_bytes(damage)
    assert ensure_index(corpus_file, tmp_path / "cache").read_bytes() == whole


def test_a_bad_corpus_leaves_nothing_behind(tmp_path: Path) -> None:
    bad = tmp_path / "bad.jsonl"
    bad.write_text("{}\n")
    with pytest.raises(CorpusError):
        ensure_index(bad, tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_cache_folder_that_is_none_is_an_error_with_the_fix(corpus_file: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(CorpusError, match="name a cache folder you may write"):
        ensure_index(corpus_file, tmp_path / "file")


def test_several_processes_may_build_at_once(corpus_file: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    with ProcessPoolExecutor(3, mp_context=multiprocessing.get_context("spawn")) as pool:
        paths = list(pool.map(ensure_index, [corpus_file] * 6, [cache] * 6))
    assert len(set(paths)) == 1
    assert [path.name for path in cache.iterdir()] == [paths[0].name]
