"""`agentrt doctor`."""

import json
from pathlib import Path
from typing import Any

NO_ADAPTERS = [f"--set=roles.{role}.adapter=none" for role in ("plan", "action", "reflect")]


def checks(stdout: str) -> dict[str, dict[str, str]]:
    return {line["name"]: line for line in map(json.loads, stdout.splitlines())}


def test_a_machine_without_the_model_is_told_how_to_get_it(cli: Any, tmp_path: Path) -> None:
    env = {"AGENTRT_CACHE": str(tmp_path / "cache"), "HF_HUB_CACHE": str(tmp_path / "hub")}
    result = cli("doctor", "--offline", "--json", *NO_ADAPTERS, env=env)
    assert result.exit_code == 0
    found = checks(result.stdout)
    assert found["python"]["state"] == "ok"
    assert found["torch"]["state"] == "ok"
    assert found["team"]["state"] == "ok"
    assert found["cache folder"]["value"] == str(tmp_path / "cache")
    assert (found["model"]["state"], found["hub"]["value"]) == ("warn", "not asked (offline)")
    assert "agentrt models fetch smollm2-135m" in found["model"]["value"]
    assert {"threads", "cpu", "device", "disk"} <= found.keys()


def test_cuda_graphs_that_are_wanted_and_cannot_be_had_are_a_warning(cli: Any) -> None:
    common = ("doctor", "--offline", "--json", *NO_ADAPTERS)
    assert "cuda graphs" not in checks(cli(*common).stdout)
    found = checks(cli(*common, "--set", "device=cpu", "--set", "cuda_graphs=auto").stdout)["cuda graphs"]
    assert (found["state"], found["value"]) == ("warn", "not used: the device is cpu, not cuda")


def test_a_team_that_cannot_run_ends_with_5(cli: Any) -> None:
    result = cli("doctor", "--offline", "--json", "--set", "roles.plan.adapter=nowhere")
    assert result.exit_code == 5
    assert checks(result.stdout)["team"]["state"] == "fail"
    assert "no adapter folder" in checks(result.stdout)["team"]["value"]


def test_a_team_file_that_is_broken_is_a_row_among_the_others(cli: Any, tmp_path: Path) -> None:
    (tmp_path / "team.yaml").write_text("version: 1\nbase: {modle: smollm2-135m}\n")
    result = cli("doctor", "--offline", "--json", "--set", "team=team.yaml")
    assert result.exit_code == 5
    found = checks(result.stdout)
    assert found["team"]["state"] == "fail"
    assert "team.yaml:2:8: " in found["team"]["value"]
    assert {"python", "disk", "hub"} <= found.keys()


def test_people_get_a_table(cli: Any) -> None:
    lines = cli("doctor", "--offline", *NO_ADAPTERS).stdout.splitlines()
    assert lines[0].split() == ["check", "state", "value"]
