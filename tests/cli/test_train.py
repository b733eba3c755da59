"""`agentrt train`: what is refused before a model is loaded."""

from pathlib import Path
from typing import Any


def test_without_data_it_says_how_to_derive_some(cli: Any) -> None:
    result = cli("train", "--out", "nowhere")
    assert result.exit_code == 2
    assert "run train with --derive, " in result.stderr


def test_an_unknown_role_is_named_with_those_there_are(cli: Any) -> None:
    result = cli("train", "--role", "critic")
    assert result.exit_code == 2
    assert "no adapter for critic" in result.stderr
    assert "plan, action, reflect" in result.stderr


def test_questions_need_their_corpus(cli: Any, tmp_path: Path) -> None:
    (tmp_path / "q.jsonl").write_text("")
    result = cli("train", "--derive", "--questions", "q.jsonl")
    assert result.exit_code == 2
    assert "give one --corpus" in result.stderr
    result = cli("train", "--derive", "--questions", "q.jsonl", "--corpus", "absent.jsonl")
    assert result.exit_code == 2
    assert "absent.jsonl is not a file" in result.stderr


def test_a_setting_out_of_range_is_refused(cli: Any) -> None:
    result = cli("train", "--passes", "0")
    assert result.exit_code == 2
    assert "passes is 0" in result.stderr


def test_targets_are_projections_by_their_letters(cli: Any) -> None:
    result = cli("train", "--targets", "QK")
    assert result.exit_code == 2
    assert "QKVO" in result.stderr
    result = cli("train", "--targets", "QKVO", "--out", "nowhere")
    assert "run train with --derive, " in result.stderr
