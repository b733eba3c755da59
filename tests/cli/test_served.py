"""What adapters, scheme and backbone do not allow is told at its place by every command, before a weight is loaded."""

import json
from pathlib import Path
from typing import Any

import pytest

from agentrt.model.tiny import tiny_adapter, tiny_model, tiny_tokenizer

TEAM = """\
version: 1
base: {model: ./tiny}
scheme: {name: rebase_shared, schedule: lp}
roles:
  solver: {adapter: solver}
flow:
  start: think
  nodes:
    think: {role: solver, emits: thought, next: end}
"""
COMMANDS = [("roles", "check", "team.yaml"), ("run", "Who?", "--team", "team.yaml"), ("eval", "--team", "team.yaml")]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A team whose backbone is there, but for its weights."""
    stock = tiny_model(vocab_size=259, layers=2)
    stock.config.save_pretrained(tmp_path / "tiny")
    (tmp_path / "tiny" / "model.safetensors").write_bytes(b"no weights")
    (tmp_path / "tiny" / "tokenizer.json").write_text(tiny_tokenizer().specification(), "utf-8")
    tiny_adapter(stock, tmp_path / "solver", seed=0)
    change_adapter(tmp_path, base_model_name_or_path="tiny")
    (tmp_path / "team.yaml").write_text(TEAM)
    return tmp_path


def change_adapter(folder: Path, **values: Any) -> None:
    file = folder / "solver" / "adapter_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **values}))


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("scheme", "adapter", "says"),
    [
        ("{name: alora}", {}, "team.yaml:5:21: scheme 'alora': adapter 'solver' is no activated LoRA"),
        ("{name: rebase_shared, schedule: never}", {}, "team.yaml:3:9: rebase_shared: unknown schedule 'never'"),
        ("{name: rebase_shered}", {}, "team.yaml:3:16: scheme 'rebase_shered' does not exist: did you mean"),
        ("{name: non_shared}", {"use_dora": True}, "team.yaml:5:21: adapter 'solver'"),
        (
            "{name: non_shared}",
            {"base_model_name_or_path": "other"},
            "team.yaml:5:21: adapter 'solver' (solver): trained for base model 'other'",
        ),
    ],
)
def test_a_team_that_cannot_be_served_ends_with_2_and_the_place(
    cli: Any, folder: Path, command: tuple[str, ...], scheme: str, adapter: dict[str, Any], says: str
) -> None:
    (folder / "team.yaml").write_text(TEAM.replace("{name: rebase_shared, schedule: lp}", scheme))
    change_adapter(folder, **adapter)
    result = cli(*command)
    assert says in result.stderr
    assert result.exit_code == 2


@pytest.mark.parametrize("flag", [("--adapters", "."), ("--sampling", "greedy")])
def test_flags_that_change_the_team_leave_the_places_of_its_file(cli: Any, folder: Path, flag: tuple[str, str]) -> None:
    (folder / "team.yaml").write_text(TEAM.replace("rebase_shared", "rebase_shered"))
    result = cli("eval", "--team", "team.yaml", *flag)
    assert "team.yaml:3:16: scheme 'rebase_shered' does not exist" in result.stderr


def test_a_base_that_is_no_model_ends_with_5(cli: Any, folder: Path) -> None:
    (folder / "team.yaml").write_text(TEAM.replace("./tiny", "./tinny"))
    result = cli("run", "Who?", "--team", "team.yaml")
    assert result.exit_code == 5
    assert "there is no model './tinny'" in result.stderr
