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
    assert "the team has no role critic" in result.stderr
    assert "plan, action, reflect" in result.stderr


def test_the_starting_team_is_told_where_its_adapters_would_go(cli: Any, tmp_path: Path) -> None:
    assert cli("roles", "init", "mine").exit_code == 0
    for way in (["--derive"], ["--trajectories", "mine/team.yaml"]):
        result = cli("train", "--team", "mine/team.yaml", *way)
        assert result.exit_code == 2
        assert "plan has no adapter to train: name a folder" in result.stderr.replace("\n", " ")


def test_questions_need_their_corpus(cli: Any, tmp_path: Path) -> None:
    (tmp_path / "q.jsonl").write_text("")
    result = cli("train", "--derive", "--questions", "q.jsonl")
    assert result.exit_code == 2
    assert "give one --corpus" in result.stderr
    result = cli("train", "--derive", "--questions", "q.jsonl", "--corpus", "absent.jsonl")
    assert result.exit_code == 2
    assert "absent.jsonl is not a file" in result.stderr


def test_a_corpus_alone_is_not_ignored(cli: Any, tmp_path: Path) -> None:
    (tmp_path / "c.jsonl").write_text("")
    result = cli("train", "--derive", "--corpus", "c.jsonl")
    assert result.exit_code == 2
    assert "--corpus c.jsonl: it holds the articles of --questions; name those too" in result.stderr
    (tmp_path / "t.jsonl").write_text("")
    both = ("--questions", "c.jsonl", "--corpus", "c.jsonl", "--trajectories", "t.jsonl", "--derive-only")
    result = cli("train", *both)
    assert "are what trajectories are derived from: add --derive" in result.stderr


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


def test_adapters_have_a_folder_of_their_own(cli: Any) -> None:
    result = cli("train", "--out", "runs/a", "--adapters", "runs/a")
    assert result.exit_code == 2
    assert "give the adapters a folder of their own" in result.stderr


def test_adapters_are_not_trained_on_in_place(cli: Any) -> None:
    result = cli("train", "--start", "mine/adapters", "--adapters", "./mine/adapters")
    assert result.exit_code == 2
    assert "--start mine/adapters: the trained adapters would replace those" in result.stderr
    result = cli("train", "--out", "run", "--start", "run/adapters")
    assert "give them another --adapters" in result.stderr


def test_pairs_name_a_role_and_judged_names_an_evaluation(cli: Any, tmp_path: Path) -> None:
    for given in ("rows.jsonl", "critic=rows.jsonl"):
        result = cli("train", "--pairs", given)
        assert result.exit_code == 2
        assert "write ROLE=FILE, with one of the roles plan, action, reflect" in result.stderr
    result = cli("train", "--pairs", "plan=rows.jsonl")
    assert result.exit_code == 2
    assert "rows.jsonl is not a file" in result.stderr
    result = cli("train", "--judged", str(tmp_path))
    assert result.exit_code == 2
    assert "is no evaluation: it has no episodes.jsonl" in result.stderr
    (tmp_path / "t.jsonl").write_text("")
    result = cli("train", "--questions", "t.jsonl")
    assert "are derived from: add --derive" in result.stderr


def test_adapters_that_the_scheme_would_refuse_are_not_begun(cli: Any) -> None:
    result = cli("train", "--derive", "--scheme", "base_lr_shared")
    assert result.exit_code == 2
    assert "--scheme: the scheme base_lr_shared takes adapters with the same A only" in result.stderr
    result = cli("train", "--derive", "--activated")
    assert "the scheme pre_lr_shared takes no activated LoRA" in result.stderr


def test_contexts_of_others_are_for_adapters_without_keys(cli: Any) -> None:
    result = cli("train", "--targets", "QKVO", "--contexts", "shared")
    assert result.exit_code == 2
    assert "leave k_proj alone" in result.stderr
