"""`agentrt drift`, on a tiny model in a folder."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from agentrt.model.tiny import tiny_adapter, tiny_model, tiny_tokenizer

ROLES = ("plan", "action", "reflect")


@pytest.fixture
def model(tmp_path: Path) -> list[str]:
    """Arguments that put a tiny model and tiny adapters in the place of the shipped ones."""
    stock = tiny_model(vocab_size=259, layers=2, max_position_embeddings=8192)
    stock.save_pretrained(tmp_path / "tiny")
    (tmp_path / "tiny" / "tokenizer.json").write_text(tiny_tokenizer().specification(), "utf-8")
    arguments = ["--set", f"base.model={tmp_path / 'tiny'}"]
    for seed, role in enumerate(ROLES):
        folder = tiny_adapter(stock, tmp_path / role, seed=seed)
        config = json.loads((folder / "adapter_config.json").read_text())
        config["base_model_name_or_path"] = str(tmp_path / "tiny")
        (folder / "adapter_config.json").write_text(json.dumps(config))
        arguments += ["--set", f"roles.{role}.adapter={folder}"]
    return arguments


@pytest.fixture
def recorded(tmp_path: Path) -> str:
    rows = [
        {
            "id": f"q{n}",
            "question_id": f"q{n}",
            "token_ids": [(7 * k + n) % 250 for k in range(20)],
            "spans": [
                [0, 5, "system", "preamble", True],
                [5, 9, "user", "question", True],
                [9, 12, "plan", "thought", True],
                [12, 14, "plan", "label", True],
                [14, 17, "action", "argument", True],
                [17, 19, "reflect", "verdict", True],
                [19, 20, "tool", "end", True],
            ],
        }
        for n in range(3)
    ]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return "t.jsonl"


def test_json_has_one_object_and_people_get_tables_a_figure_and_a_sentence(
    cli: Any, model: list[str], recorded: str, tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib")
    chosen = ["--schemes", "full_shared,rebase_shared:adapted_tail=1,pivot=plan,pre_lr_shared", "--limit", "2"]
    arguments = ["drift", *model, "--trajectories", recorded, *chosen, "--plot", "figures", "--out", "out/drift.json"]
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


def test_without_trajectories_they_are_derived_from_the_mini_benchmark(cli: Any, model: list[str]) -> None:
    longer = [f"roles.{role}.sampling.max_new_tokens=220" for role in ROLES]  # its tokens are bytes
    sets = [word for each in (*longer, "limits.max_observation_tokens=900") for word in ("--set", each)]
    result = cli("drift", *model, *sets, "--schemes", "full_shared", "--limit", "2", "--json", "-q")
    assert result.exit_code == 0, result.stderr
    line = json.loads(result.stdout)
    assert 1 <= line["trajectories"] <= 2
    assert set(line["schemes"][0]["by_role"]) == set(ROLES)
    assert line["schemes"][1]["kl"]["mean"] > 0


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
    for word in ("--trajectories", "--schemes", "--limit", "--plot", "KL of the next-token", "last line"):
        assert word in " ".join(text.split())
