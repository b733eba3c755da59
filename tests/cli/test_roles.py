"""`agentrt roles`."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from agentrt.config.schema import team_schema
from agentrt.model.tiny import tiny_model, tiny_tokenizer

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
base: {model: ./tiny-llama}
"""
HIDDEN = 48
"""Of the tiny model."""


def save_lora(
    folder: Path, module: str, rank_a: int = 8, rank_b: int = 8, *, d_in: int = HIDDEN, d_out: int = 16, layer: int = 0
) -> None:
    key = f"base_model.model.model.layers.{layer}.{module}.lora_"
    tensors = {f"{key}A.weight": torch.zeros(rank_a, d_in), f"{key}B.weight": torch.zeros(d_out, rank_b)}
    save_file(tensors, folder / "adapter_model.safetensors")


@pytest.fixture
def team(tmp_path: Path) -> Path:
    """A team of one adapter on a tiny backbone, both in `tmp_path`."""
    tiny_model(vocab_size=259, layers=2).save_pretrained(tmp_path / "tiny-llama")
    (tmp_path / "tiny-llama" / "tokenizer.json").write_text(tiny_tokenizer().specification(), "utf-8")
    adapter = tmp_path / "adapters" / "solver"
    adapter.mkdir(parents=True)
    config = {
        "base_model_name_or_path": "agentrt/tiny-llama",
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


@pytest.mark.parametrize(
    ("lora", "says"),
    [
        ({"d_in": HIDDEN + 1}, "has A [8, 49] and B [16, 8], the backbone maps 48 to 16"),
        ({"layer": 2}, "layer 2 v_proj does not exist in the backbone, which has 2 layers"),
    ],
)
def test_adapters_are_held_against_the_layers_of_the_backbone(
    cli: Any, team: Path, lora: dict[str, Any], says: str
) -> None:
    save_lora(team.parent / "adapters" / "solver", "self_attn.v_proj", **lora)
    result = cli("roles", "check", str(team))
    assert result.exit_code == 2
    assert "team.yaml:4:21: " in result.stderr
    assert says in result.stderr


@pytest.mark.parametrize(
    ("scheme", "says"),
    [
        ("droidspeak:layers=1-7", "layers"),
        ("rebase_shared:pivot=critic", "pivot 'critic' is not a role with an adapter; roles: solver"),
        ("ridge:top=3,maps=none.safetensors", "ridge: top is 3, the backbone has 2 layers"),
        ("ridge:maps=none.safetensors", "none.safetensors is no file of ridge maps"),
        ("relay_caching:layers=none.json", "none.json"),
    ],
)
def test_options_of_the_scheme_are_held_against_backbone_and_adapters(
    cli: Any, team: Path, scheme: str, says: str
) -> None:
    result = cli("roles", "check", str(team), "--scheme", scheme)
    assert result.exit_code == 2
    assert says in result.stderr
    assert "scheme" in result.stderr


def test_adapters_that_differ_in_a_do_not_go_under_a_shared_one(cli: Any, team: Path) -> None:
    other = team.parent / "adapters" / "critic"
    shutil.copytree(team.parent / "adapters" / "solver", other)
    team.write_text(TEAM.replace("adapter: none", "adapter: adapters/critic"))
    assert cli("roles", "check", str(team), "--scheme", "base_lr_shared").exit_code == 0
    file = other / "adapter_model.safetensors"
    save_file({key: tensor + ("lora_A" in key) for key, tensor in load_file(file).items()}, file)
    result = cli("roles", "check", str(team), "--scheme", "base_lr_shared")
    assert result.exit_code == 2
    assert "the adapters differ in A on v_proj or k_proj" in result.stderr


def test_without_the_backbone_on_this_machine_the_rest_is_checked_and_a_note_says_so(cli: Any, team: Path) -> None:
    env = {"AGENTRT_CACHE": str(team.parent / "cache"), "HF_HUB_CACHE": str(team.parent / "hub")}
    away = ["roles", "check", str(team), "--set", "base.model=agentrt/tiny-llama"]
    result = cli(*away, env=env)
    assert result.exit_code == 0
    assert "note: agentrt/tiny-llama is not on this machine: its layers and widths were not looked at" in result.stdout
    previewed = cli(*away, "--preview", env=env)
    assert previewed.exit_code == 2
    assert "agentrt models fetch agentrt/tiny-llama" in previewed.stderr


def test_a_base_that_is_no_model_is_named_at_its_place(cli: Any, team: Path) -> None:
    team.write_text(TEAM.replace("./tiny-llama", "./tiny-lama"))
    result = cli("roles", "check", str(team))
    assert result.exit_code == 2
    assert "team.yaml:11:15: there is no model './tiny-lama'" in result.stderr


def test_training_data_in_other_bytes_ends_with_2_and_the_places_of_both_files(cli: Any, team: Path) -> None:
    data = team.parent / "data.jsonl"
    data.write_text(json.dumps({"text": "Question: Who?\nThought: I.\nAction: Reflect[ right]\n"}) + "\n")
    checked = cli("roles", "check", str(team), "--train-data", str(data))
    assert checked.exit_code == 0, checked.stderr
    data.write_text(json.dumps({"text": "Question: Who?\nThougt: I.\nAction: Reflect[ right]\n"}) + "\n")
    result = cli("roles", "check", str(team), "--train-data", str(data))
    assert result.exit_code == 2
    assert f"{team}:1:1: the training data has not 'Thought:', but 'Thougt:' (1 times, first in {data}:1)" in (
        result.stderr
    )


def test_what_training_data_lacks_is_a_note(cli: Any, team: Path) -> None:
    data = team.parent / "data.jsonl"
    data.write_text(json.dumps({"turns": [{"role": "critic", "action": "Reflect", "action_input": "right"}]}) + "\n")
    result = cli("roles", "check", str(team), "--train-data", str(data), "--json")
    assert result.exit_code == 0, result.stderr
    events = [json.loads(line) for line in result.stdout.splitlines()]
    assert [event["event"] for event in events] == ["note", "team_checked"]
    assert "labels, markers and preamble were not compared" in events[0]["text"]


def test_a_preview_shows_what_roles_read_with_tokens_counted(cli: Any, team: Path) -> None:
    text = cli("roles", "check", str(team), "--preview").stdout
    rows = [" ".join(line.split()) for line in text.splitlines()]
    assert rows[1] == "span by text tokens"
    assert rows[3] == "label runtime 'Thought:' 8"
    assert rows[4] == "thought solver ' …\\n' at most 128"
    assert rows[5] == "instruction runtime 'Find the mistake.\\n' 18"
    assert rows[-1] == "preamble 0 tokens; labels, ends and instructions 56"
    lines = [json.loads(line) for line in cli("roles", "check", str(team), "--preview", "--json").stdout.splitlines()]
    assert lines[0]["event"] == "team_checked"
    assert lines[2] == {
        "event": "span",
        "author": "runtime",
        "kind": "label",
        "text": "Thought:",
        "num_tokens": 8,
        "at_most": None,
    }


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
    assert cli("roles", "schema").stdout == cli("roles", "schema", "-q", "-v").stdout == team_schema()
    (line,) = cli("roles", "schema", "--json").stdout.splitlines()
    assert json.loads(line) == json.loads(team_schema())


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
