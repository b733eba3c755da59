"""A folder takes its place whole: whatever is killed, the one before or the new one is there."""

import os
from pathlib import Path

import pytest

from agentrt.training.publish import published


def fill(folder: Path, text: str) -> None:
    with published(folder) as draft:
        (draft / "a").write_text(text)


def fail(folder: Path) -> None:
    with published(folder) as draft:
        (draft / "a").write_text("2")
        raise RuntimeError("stop")


def test_it_is_there_only_when_the_block_has_ended(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "x"
    with published(folder) as draft:
        (draft / "a").write_text("1")
        assert not folder.exists()
    assert (folder / "a").read_text() == "1"
    assert [path.name for path in folder.parent.iterdir()] == ["x"]


def test_an_error_leaves_what_was_there(tmp_path: Path) -> None:
    fill(tmp_path / "x", "1")
    with pytest.raises(RuntimeError, match="stop"):
        fail(tmp_path / "x")
    assert (tmp_path / "x" / "a").read_text() == "1"
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_files_of_the_one_before_do_not_stay(tmp_path: Path) -> None:
    fill(tmp_path / "x", "1")
    (tmp_path / "x" / "old").touch()
    fill(tmp_path / "x", "2")
    assert [path.name for path in (tmp_path / "x").iterdir()] == ["a"]


def test_leftovers_of_a_kill_are_cleared_and_a_lost_folder_comes_back(tmp_path: Path) -> None:
    fill(tmp_path / "x", "1")
    os.replace(tmp_path / "x", tmp_path / ".x.before")  # killed between the two renames
    (tmp_path / ".x.draft").mkdir()
    (tmp_path / ".x.draft" / "half").touch()
    with pytest.raises(RuntimeError, match="stop"):
        fail(tmp_path / "x")
    assert (tmp_path / "x" / "a").read_text() == "1"
    assert [path.name for path in tmp_path.iterdir()] == ["x"]
