"""`agentrt roles`."""

import json
from pathlib import Path
from typing import Any

import pytest

from agentrt.config.schema import team_schema

TEAM = """\
version: 1
scheme: {name: rebase_shared, schedule: lp}
roles:
  solver: {adapter: adapters/solver}
  critic: {adapter: none, instruction: Find the mistake.}
flow:
  start: think
  nodes:
    think: {role: solver, emits: thought, next: judge}
    judge: {role: critic, emits: verdict, choices: [right, wrong], next: {right: end, wrong: think}}
"""


@pytest.fixture
def team(tmp_path: Path) -> Path:
    adapter = tmp_path / "adapters" / "solver"
    adapter.mkdir(parents=True)
    config = {
        "base_model_name_or_path": "HuggingFaceTB/SmolLM2-135M-Instruct",
        "r": 8,
        "lora_alpha": 16,
        "target_modules": ["v_proj", "q_proj"],
    }
    (adapter / "adapter_config.json").write_text(json.dumps(config))
    (adapter / "adapter_model.safetensors").write_bytes(b"1234")
    file = tmp_path / "team.yaml"
    file.write_text(TEAM)
    return file


def test_a_team_in_order_is_told_so(cli: Any, team: Path) -> None:
    result = cli("roles", "check", str(team))
    assert result.exit_code == 0
    assert result.stdout == f"{team} is in order: 2 roles, 0 tools, 2 nodes, scheme rebase_shared:lp\n"


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (
            "schedule: lp",
            "shedule: lp",
            "team.yaml:2:31: rebase_shared has no option 'shedule': did you mean",
        ),
        ("rebase_shared", "rebase_sharde", "team.yaml:2:16: scheme 'rebase_sharde' does not exist: did you mean"),
        ("adapters/solver", "adapters/slover", "team.yaml:4:21: no adapter folder"),
    ],
)
def test_a_broken_team_ends_with_2_and_the_place(cli: Any, team: Path, old: str, new: str, says: str) -> None:
    team.write_text(TEAM.replace(old, new))
    result = cli("roles", "check", str(team))
    assert result.exit_code == 2
    assert says in result.stderr


def test_the_scheme_of_the_command_line_is_checked_too(cli: Any, team: Path) -> None:
    result = cli("roles", "check", str(team), "--scheme", "pre_lr_shard")
    assert result.exit_code == 2
    assert "did you mean 'pre_lr_shared'?" in result.stderr


def test_roles_are_shown_with_what_their_adapters_are(cli: Any, team: Path) -> None:
    result = cli("roles", "show", str(team), "--json")
    assert result.exit_code == 0
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    solver = next(line for line in lines if line["event"] == "role" and line["name"] == "solver")
    assert solver == {
        "event": "role",
        "name": "solver",
        "adapter": "adapters/solver",
        "writes": ["thought"],
        "rank": 8,
        "alpha": 16,
        "targets": "q_proj+v_proj",
        "bytes": 4,
    }
    node = next(line for line in lines if line["event"] == "node" and line["name"] == "judge")
    assert node["next"] == {"right": "end", "wrong": "think"}


def test_people_see_roles_tools_and_flow(cli: Any, team: Path) -> None:
    text = cli("roles", "show", str(team)).stdout
    assert "rank 8, alpha 16, targets q_proj+v_proj" in text
    assert "right: end, wrong: think" in text


def test_the_schema_is_printed(cli: Any) -> None:
    assert cli("roles", "schema").stdout == team_schema()
