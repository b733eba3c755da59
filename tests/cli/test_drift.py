"""`agentrt drift`, on a tiny model in a folder."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from agentrt.builtin import configs_dir
from tests.cli.tiny_team import ROLES, tiny_team, write_trajectories


@pytest.fixture
def model(tmp_path: Path) -> list[str]:
    write_trajectories(tmp_path / "t.jsonl")
    return tiny_team(tmp_path)


def test_json_has_one_object_and_people_get_tables_a_figure_and_a_sentence(
    cli: Any, model: list[str], tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib")
    chosen = ["--schemes", "full_shared,rebase_shared:adapted_tail=1,pivot=plan,pre_lr_shared", "--limit", "2"]
    arguments = ["drift", *model, "--trajectories", "t.jsonl", *chosen, "--plot", "figures", "--out", "out/drift.json"]
    result = cli(*arguments, "--json")
    assert result.exit_code == 0, result.stderr
    (line,) = [json.loads(line) for line in result.stdout.splitlines()]
    assert line["event"] == "drift"
    assert (line["trajectories"], line["tokens"], line["generated_tokens"]) == (2, 2 * 19, 2 * 8)
    assert [each["scheme"] for each in line["schemes"]] == [
        "non_shared",
        "full_shared",
        "rebase_shared:adapted_tail=1,pivot=plan",
        "pre_lr_shared",
    ]
    assert set(line["layers"]["base"]) == {"all", "plan -> action", "plan -> reflect", "action -> reflect"}
    assert json.loads((tmp_path / "out" / "drift.json").read_text()) == line
    assert (tmp_path / "figures" / "drift.png").is_file()
    assert "neutral closer" in result.stderr
    assert result.stderr.rstrip().endswith(line["sentence"])
    people = cli(*arguments)
    assert people.exit_code == 0, people.stderr
    assert people.stdout.rstrip().endswith(line["sentence"])


def test_a_folder_to_write_into_is_refused_before_anything_is_measured(
    cli: Any, model: list[str], tmp_path: Path
) -> None:
    (tmp_path / "here").mkdir()
    result = cli("drift", *model, "--trajectories", "absent.jsonl", "--out", "here")
    assert result.exit_code == 2
    assert "--out here: a folder; name a file, here/drift.json" in result.stderr


def test_questions_that_cannot_be_used_are_counted_and_the_rest_is_measured(
    cli: Any, model: list[str], tmp_path: Path
) -> None:
    mini = configs_dir() / "mini"
    first = (mini / "questions.jsonl").read_text().splitlines()[0]
    (tmp_path / "q.jsonl").write_text(f"{first}\nnot JSON\n")
    wide = [f"--set=roles.{role}.sampling.max_new_tokens=220" for role in ROLES]
    files = ["--questions", "q.jsonl", "--corpus", str(mini / "articles.jsonl")]
    result = cli("drift", *model, *wide, "--set=limits.max_observation_tokens=900", *files, "--schemes", "full_shared")
    assert result.exit_code == 0, result.stderr
    assert "left out 1 samples: it is not JSON" in result.stdout


def test_other_adapters_of_the_same_roles_may_be_measured_and_rows_are_kept(
    cli: Any, model: list[str], tmp_path: Path
) -> None:
    arguments = ["drift", *model, "--trajectories", "t.jsonl", "--schemes", "full_shared", "--json", "-q"]
    own = json.loads(cli(*arguments).stdout)
    softer = tmp_path / "softer"
    for role in ROLES:
        (softer / role).mkdir(parents=True)
        shutil.copy(tmp_path / role / "adapter_config.json", softer / role)
        weights = load_file(tmp_path / role / "adapter_model.safetensors")
        save_file({name: each * 0.1 for name, each in weights.items()}, softer / role / "adapter_model.safetensors")
    bare = ["drift", *model[:2], *arguments[1 + len(model) :], "--adapters", "softer"]  # --set would win over it
    result = cli(*bare, "--rows", "rows.jsonl")
    assert result.exit_code == 0, result.stderr
    other = json.loads(result.stdout)
    assert other["schemes"][1]["kl"]["mean"] < 0.1 * own["schemes"][1]["kl"]["mean"]
    assert set(other["declared"]["adapters"]) == set(ROLES)
    assert other["declared"]["adapters"] != own["declared"]["adapters"]
    assert len((tmp_path / "rows.jsonl").read_text().splitlines()) == 1 + 3
    refused = cli(*arguments, "--rows", "rows.jsonl")
    assert refused.exit_code == 2
    assert "--rows rows.jsonl: its adapters is" in refused.stderr
    shutil.rmtree(softer / "reflect")
    refused = cli(*bare)
    assert refused.exit_code == 2
    assert f"--adapters softer: no adapter folder {softer / 'reflect'}" in refused.stderr


def test_without_trajectories_they_are_derived_from_the_mini_benchmark(cli: Any, model: list[str]) -> None:
    longer = [f"roles.{role}.sampling.max_new_tokens=220" for role in ROLES]  # its tokens are bytes
    sets = [word for each in (*longer, "limits.max_observation_tokens=900") for word in ("--set", each)]
    result = cli("drift", *model, *sets, "--schemes", "full_shared", "--limit", "2", "--json", "-q")
    assert result.exit_code == 0, result.stderr
    line = json.loads(result.stdout)
    assert 1 <= line["trajectories"] <= 2
    assert set(line["schemes"][0]["by_role"]) == set(ROLES)
    assert line["schemes"][1]["kl"]["mean"] > 0


def test_what_is_left_out_of_all_schemes_is_told_with_the_reason(cli: Any, model: list[str]) -> None:
    result = cli("drift", *model, "--trajectories", "t.jsonl", "--schemes", "all", "--limit", "1", "--json")
    assert result.exit_code == 0, result.stderr
    line = json.loads(result.stdout)
    assert [each["scheme"] for each in line["left_out"]] == ["base_lr_shared", "alora", "ridge"]
    shown = " ".join(result.stderr.split())
    for each in line["left_out"]:
        assert f"left out {each['scheme']}: {each['reason']}" in shown
    assert (
        "fit them with `agentrt profile --ridge` and name the file, ridge:maps=FILE" in line["left_out"][-1]["reason"]
    )
    assert not {"ridge", "alora"} & {each["scheme"] for each in line["schemes"]}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--schemes", "ful_shared"], "did you mean 'full_shared'"),
        (["--schemes", " "], "name at least one scheme"),
        (["--trajectories", "absent.jsonl"], "absent.jsonl is not a file"),
        (["--questions", "absent.jsonl"], "go together"),
        (["--limit", "0"], "limit"),
    ],
)
def test_bad_input_is_refused_before_a_model_is_loaded(cli: Any, arguments: list[str], message: str) -> None:
    result = cli("drift", *arguments, "--set", "base.model=/nowhere")
    assert result.exit_code == 2, result.stderr
    assert message in result.stderr


def test_trajectories_of_other_roles_are_refused_by_name(cli: Any, model: list[str], tmp_path: Path) -> None:
    row = {
        "id": "x",
        "question_id": "x",
        "token_ids": [1, 2, 3],
        "spans": [[0, 2, "u", "q"], [2, 3, "critic", "thought"]],
    }
    (tmp_path / "t.jsonl").write_text(json.dumps(row) + "\n")
    result = cli("drift", *model, "--trajectories", "t.jsonl")
    assert result.exit_code == 2
    assert "trajectory x: there is no adapter for critic; adapters: plan, action, reflect" in result.stderr


def test_plot_without_matplotlib_says_how_to_install_it(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = cli("drift", "--plot", "figures")
    assert result.exit_code == 2
    assert "pip install 'agentrt[plots]'" in result.stderr


def test_help_says_what_is_measured(cli: Any) -> None:
    text = cli("drift", "--help").stdout
    for word in (
        "--trajectories",
        "--schemes",
        "--limit",
        "--plot",
        "--rows",
        "--adapters",
        "KL of the next-token",
        "last line",
    ):
        assert word in " ".join(text.split())
