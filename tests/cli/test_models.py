"""`agentrt models fetch`."""

import json
from pathlib import Path
from typing import Any


def test_a_folder_is_found_as_it_is(cli: Any, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"")
    result = cli("models", "fetch", str(folder), "--offline", "--json")
    assert result.exit_code == 0
    event = json.loads(result.stdout)
    assert (event["event"], event["folder"], event["origin"]) == ("model_fetched", str(folder), "folder")


def test_quiet_draws_no_bar(cli: Any, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"")
    told = [cli("models", "fetch", str(tmp_path), *flags, env={"FORCE_COLOR": "1"}).stderr for flags in ((), ("-q",))]
    assert "\x1b[?25l" in told[0]  # where bars are drawn, the cursor goes
    assert told[1] == ""


def test_a_model_that_is_not_there_ends_with_5_and_the_fix(cli: Any) -> None:
    result = cli("models", "fetch", "smollm2-136m", "--offline")
    assert result.exit_code == 5
    assert "did you mean 'smollm2-135m'?" in result.stderr


def test_offline_nothing_is_asked_of_the_network(cli: Any, tmp_path: Path) -> None:
    env = {"AGENTRT_CACHE": str(tmp_path / "empty"), "HF_HUB_CACHE": str(tmp_path / "hub")}
    result = cli("models", "fetch", "--offline", env=env)
    assert result.exit_code == 5
    assert "agentrt models fetch smollm2-135m" in result.stderr
