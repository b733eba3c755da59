"""`agentrt config show`."""

import json
from pathlib import Path
from typing import Any

import pytest


def records(stdout: str) -> dict[str, dict[str, Any]]:
    lines = [json.loads(line) for line in stdout.splitlines()]
    return {line["name"]: line for line in lines}


def test_origins_name_flag_variable_and_file_line(cli: Any, tmp_path: Path) -> None:
    (tmp_path / "agentrt.yaml").write_text("team: search\nout: here\n")
    user = tmp_path / "user" / "agentrt" / "agentrt.yaml"
    user.parent.mkdir(parents=True)
    user.write_text("offline: true\n")
    result = cli(
        "config",
        "show",
        "--origin",
        "--json",
        "--seed",
        "3",
        "--set",
        "limits.max_steps=2",
        env={"AGENTRT_DEVICE": "cpu"},
    )
    assert result.exit_code == 0
    shown = records(result.stdout)
    assert (shown["seed"]["value"], shown["seed"]["origin"]) == (3, "--seed")
    assert (shown["device"]["value"], shown["device"]["origin"]) == ("cpu", "AGENTRT_DEVICE")
    assert (shown["out"]["value"], shown["out"]["origin"]) == ("here", "agentrt.yaml:2")
    assert (shown["offline"]["value"], shown["offline"]["origin"]) == (True, f"{user}:1")
    assert (shown["threads"]["value"], shown["threads"]["origin"]) == (None, "default")
    assert shown["overrides.limits.max_steps"]["value"] == 2


def test_only_the_scheme_that_wins_is_shown(cli: Any, tmp_path: Path) -> None:
    (tmp_path / "agentrt.yaml").write_text("overrides: {scheme: {name: full_shared}}\n")
    assert records(cli("config", "show", "--json").stdout)["overrides.scheme.name"]["value"] == "full_shared"
    shown = records(cli("config", "show", "--json", "--origin", "--scheme", "rebase_shared:lp").stdout)
    assert (shown["scheme"]["value"], shown["scheme"]["origin"]) == ("rebase_shared:lp", "--scheme")
    assert [name for name in shown if name.startswith("overrides")] == []


def test_without_origin_there_is_none(cli: Any) -> None:
    assert "origin" not in records(cli("config", "show", "--json").stdout)["seed"]


def test_people_get_a_plain_table(cli: Any) -> None:
    lines = cli("config", "show", "--origin").stdout.splitlines()
    assert lines[0].split() == ["setting", "value", "origin"]
    assert ["seed", "0", "default"] in [line.split() for line in lines]
    assert "\x1b" not in "".join(lines)


@pytest.mark.parametrize(
    "text", ["tools.Search.api_key=hunter2", "tools.Search={api_key: hunter2, k: 3}", "tools.Search.api_key.is=hunter2"]
)
def test_a_secret_is_never_shown(cli: Any, text: str) -> None:
    result = cli("config", "show", "--origin", "--set", text)
    assert "hunter2" not in result.stdout + result.stderr
    assert "(hidden)" in result.stdout


def test_a_broken_settings_file_is_named_with_its_place(cli: Any, tmp_path: Path) -> None:
    (tmp_path / "agentrt.yaml").write_text("seed: -1\n")
    result = cli("config", "show")
    assert result.exit_code == 2
    assert "agentrt.yaml:1:7: seed: must be at least 0" in result.stderr


def test_a_number_of_tokens_is_no_secret(cli: Any) -> None:
    result = cli("config", "show", "--json", "--set", "limits.max_observation_tokens=90")
    assert records(result.stdout)["overrides.limits.max_observation_tokens"]["value"] == 90
