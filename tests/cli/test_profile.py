"""`agentrt profile`, on a tiny model in a folder."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from safetensors import safe_open
from safetensors.torch import save

from tests.cli.tiny_team import tiny_team, write_trajectories


@pytest.fixture
def model(tmp_path: Path) -> list[str]:
    write_trajectories(tmp_path / "t.jsonl")
    return [*tiny_team(tmp_path), "--trajectories", "t.jsonl"]


def test_measured_layers_are_an_option_of_the_schemes(cli: Any, model: list[str]) -> None:
    result = cli("profile", *model, "--limit", "1", "--json")
    assert result.exit_code == 0, result.stderr
    line = json.loads(result.stdout)
    assert line["event"] == "profile"
    assert set(line["layers"]) == {"droidspeak", "droidspeak_scattered", "relay_caching"}
    assert line["trajectories"] == 1
    stored = json.loads(Path(line["file"]).read_text())
    assert stored["layers"] == line["layers"]
    assert "use it: --scheme droidspeak:layers=runs/profile/layers.json" in result.stderr
    drift = cli("drift", *model, "--schemes", f"droidspeak:layers={line['file']}", "--json", "-q")
    assert drift.exit_code == 0, drift.stderr
    stored["backbone"] = "another"
    Path(line["file"]).write_text(json.dumps(stored))
    refused = cli("drift", *model, "--schemes", f"droidspeak:layers={line['file']}")
    assert refused.exit_code == 2
    assert "were measured on another backbone; run `agentrt profile` for this one" in refused.stderr


def test_ridge_maps_are_fitted_and_served(cli: Any, model: list[str]) -> None:
    result = cli("profile", *model, "--ridge", "--out", "fit", "--json")
    assert result.exit_code == 0, result.stderr
    line = json.loads(result.stdout)
    assert line["event"] == "ridge_fitted"
    assert line["tokens"] == 3 * 19
    assert set(line["gains"]) == {"plan", "action", "reflect"}
    drift = cli("drift", *model, "--schemes", "ridge:fit/ridge.safetensors", "--json", "-q", "--rows", "rows.jsonl")
    assert drift.exit_code == 0, drift.stderr
    maps = Path("fit/ridge.safetensors")
    maps.write_bytes(ridge_of_another_seed(maps))
    other = cli("drift", *model, "--schemes", "ridge:fit/ridge.safetensors", "-q", "--rows", "rows.jsonl")
    assert other.exit_code == 2
    assert "--rows rows.jsonl: its schemes is" in other.stderr


def ridge_of_another_seed(file: Path) -> bytes:
    """The maps with every number halved."""
    with safe_open(file, "pt") as opened:
        metadata, names = opened.metadata(), list(opened.keys())
        return save({name: opened.get_tensor(name) / 2 for name in names}, metadata)


def test_samples_of_another_tokenizer_are_refused_for_ridge_too(cli: Any, model: list[str], tmp_path: Path) -> None:
    rows = (tmp_path / "t.jsonl").read_text()
    (tmp_path / "t.jsonl").write_text(re.sub(r'"token_ids": \[\d+', '"token_ids": [99999', rows))
    for flags in ([], ["--ridge"]):
        result = cli("profile", *model, *flags, "--out", "fit")
        assert result.exit_code == 2, result.stderr
        assert "a token is outside the vocabulary" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--schemes", "pre_lr_shared"], "no layers to be measured"),
        (["--share", "0"], "above 0 up to 1"),
        (["--trajectories", "absent.jsonl"], "absent.jsonl is not a file"),
    ],
)
def test_bad_input_is_refused_before_a_model_is_loaded(cli: Any, arguments: list[str], message: str) -> None:
    result = cli("profile", *arguments, "--set", "base.model=/nowhere")
    assert result.exit_code == 2, result.stderr
    assert message in result.stderr


def test_help_says_what_is_measured(cli: Any) -> None:
    text = " ".join(cli("profile", "--help").stdout.split())
    for word in ("--ridge", "--share", "--schemes", "KL of the next token", "these adapters only"):
        assert word in text
