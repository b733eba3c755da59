"""`agentrt roles`."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

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


def save_lora(folder: Path, module: str, rank_a: int = 8, rank_b: int = 8) -> None:
    key = f"base_model.model.model.layers.0.{module}.lora_"
    tensors = {f"{key}A.weight": torch.zeros(rank_a, 4), f"{key}B.weight": torch.zeros(4, rank_b)}
    save_file(tensors, folder / "adapter_model.safetensors")


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
    save_lora(adapter, "self_attn.v_proj")
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


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"use_dora": True}, "use_dora: DoRA rescales the base weights per adapter; retrain with use_dora=False"),
        ({"bias": "all"}, "bias='all': trained biases differ per adapter; retrain with bias='none'"),
        ({"alora_invocation_tokens": [3]}, "is activated LoRA (alora_invocation_tokens); use the scheme alora"),
    ],
)
def test_an_adapter_that_is_not_served_is_told_before_a_weight_is_loaded(
    cli: Any, team: Path, config: dict[str, Any], says: str
) -> None:
    file = team.parent / "adapters" / "solver" / "adapter_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **config}))
    result = cli("roles", "check", str(team))
    assert result.exit_code == 2
    assert "team.yaml:4:21: " in result.stderr
    assert says in result.stderr


@pytest.mark.parametrize(
    ("module", "ranks", "says"),
    [
        ("self_attn.rotary", (8, 8), "is not LoRA on one of q_proj"),
        ("mlp.up_proj", (8, 4), "has A of rank 8 and B of rank 4"),
    ],
)
def test_targets_and_ranks_are_read_from_the_names_and_shapes_of_the_weights(
    cli: Any, team: Path, module: str, ranks: tuple[int, int], says: str
) -> None:
    save_lora(team.parent / "adapters" / "solver", module, *ranks)
    result = cli("roles", "check", str(team))
    assert result.exit_code == 2
    assert "team.yaml:4:21: " in result.stderr
    assert says in result.stderr


def test_values_of_scheme_options_are_checked(cli: Any, team: Path) -> None:
    team.write_text(TEAM.replace("schedule: lp", "schedule: never"))
    result = cli("roles", "check", str(team))
    assert result.exit_code == 2
    assert "team.yaml:2:" in result.stderr
    assert "unknown schedule 'never'; known: auto, lp, db, fused" in result.stderr
    wrong = cli("roles", "check", str(team), "--scheme", "alora")
    assert "adapter 'solver' is no activated LoRA" in wrong.stderr


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
        "bytes": (team.parent / "adapters" / "solver" / "adapter_model.safetensors").stat().st_size,
    }
    node = next(line for line in lines if line["event"] == "node" and line["name"] == "judge")
    assert node["next"] == {"right": "end", "wrong": "think"}


def test_people_see_roles_tools_and_flow(cli: Any, team: Path) -> None:
    text = cli("roles", "show", str(team)).stdout
    assert "rank 8, alpha 16, targets q_proj+v_proj" in text
    assert "right: end, wrong: think" in text


def test_the_schema_is_printed(cli: Any) -> None:
    assert cli("roles", "schema").stdout == team_schema()


def test_a_starting_team_is_written_once_and_is_in_order(cli: Any, tmp_path: Path) -> None:
    result = cli("roles", "init", "mine")
    assert result.exit_code == 0
    assert "agentrt roles check" in result.stdout
    assert (tmp_path / "mine" / "team.schema.json").read_text() == team_schema()
    checked = cli("roles", "check", "mine/team.yaml")
    assert checked.exit_code == 0
    assert "3 roles, 2 tools, 6 nodes" in checked.stdout


@pytest.mark.parametrize("file", ["team.yaml", "team.schema.json"])
def test_a_file_that_is_there_is_never_overwritten(cli: Any, tmp_path: Path, file: str) -> None:
    (tmp_path / "team").mkdir()
    (tmp_path / "team" / file).write_text("mine")
    result = cli("roles", "init")
    assert result.exit_code == 2
    assert f"{file} exists already" in result.stderr
    assert [(one.name, one.read_text()) for one in (tmp_path / "team").iterdir()] == [(file, "mine")]


def test_a_folder_that_cannot_be_made_is_named(cli: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = cli("roles", "init", "file/team")
    assert result.exit_code == 2
    assert "cannot write a team there" in result.stderr


def test_action_lines_are_counted_in_a_table_and_as_json(cli: Any, tmp_path: Path) -> None:
    turns = [
        {"role": "reflect", "action": "Finish", "action_input": "42", "well_formed": True},
        {"role": "reflect", "action": "Finish", "action_input": "", "action_text": "finish[42].", "well_formed": False},
    ]
    (tmp_path / "one.jsonl").write_text(json.dumps({"turns": turns}) + "\n")
    result = cli("roles", "parse", "one.jsonl", "one.jsonl")
    rows = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert rows[0] == "file texts strict lenient nothing repairs"
    assert rows[1] == "one.jsonl 2 50.0% 100.0% 0.0% case 1, behind 1"
    assert rows[3].startswith("all 4 50.0% 100.0%")
    lines = [json.loads(line) for line in cli("roles", "parse", "one.jsonl", "--json").stdout.splitlines()]
    assert lines == [
        {
            "event": "actions_parsed",
            "file": "one.jsonl",
            "texts": 2,
            "strict": 1,
            "lenient": 2,
            "nothing": 0,
            "repairs": {"case": 1, "behind": 1},
        }
    ]
    assert cli("roles", "parse", "absent.jsonl").exit_code == 2
