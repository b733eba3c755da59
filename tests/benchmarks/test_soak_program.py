"""The soak as a program: its file, and the exit code that goes with the verdict."""

import json
from pathlib import Path
from typing import Any

import pytest

from agentrt.builtin import agents_dir
from agentrt.model.tiny import tiny_adapter, tiny_model, tiny_tokenizer
from benchmarks.soak.__main__ import main
from tests.crew import ROLES


@pytest.fixture
def team_file(tmp_path: Path) -> Path:
    """The default team on a tiny model."""
    model, folder = tiny_model(vocab_size=259, layers=2, max_position_embeddings=4096), tmp_path / "tiny-llama"
    model.save_pretrained(folder)
    (folder / "tokenizer.json").write_text(tiny_tokenizer().specification(), "utf-8")
    text = (agents_dir() / "search" / "team.yaml").read_text("utf-8").replace("smollm2-135m", str(folder))
    for seed, role in enumerate(ROLES):
        adapter = tiny_adapter(model, tmp_path / role, seed=seed)
        text = text.replace(f"adapters/{role}", str(adapter))
    file = tmp_path / "team.yaml"
    file.write_text(text, "utf-8")
    return file


def run(team_file: Path, *options: str) -> tuple[int, dict[str, Any]]:
    """The exit code, and what is in the file."""
    out = team_file.parent / "soak.json"
    short = ("--minutes", "0.1", "--warm-up-minutes", "0.02", "--workers", "3", "--replays", "6")
    code = main([*short, "--team", str(team_file), "--out", str(out), *options])
    return code, json.loads(out.read_text("utf-8"))


@pytest.mark.slow
def test_a_soak_of_seconds_finds_no_fault_and_ends_with_its_verdict(team_file: Path) -> None:
    code, told = run(team_file, "--kv-tokens", "3000", "--max-waiting", "2", "--hang-every", "1")
    wrong = [fault for fault in told["faults"] if not fault.startswith("the load never met")]
    assert wrong == []  # in a few seconds on a busy machine it may not meet all it should
    assert (code, told["verdict"]) == ((1, "failed") if told["faults"] else (0, "passed"))
    assert told["ended"]
    assert told["compared"]["same"] > 0


@pytest.mark.slow
def test_a_soak_whose_load_meets_little_ends_with_1_and_a_file_that_says_failed(team_file: Path) -> None:
    code, told = run(team_file, "--max-waiting", "0")
    assert (code, told["verdict"], told["ended"]) == (1, "failed", True)
    assert [fault.partition(":")[0] for fault in told["faults"]] == ["the load never met"]
    assert told["counts"]["refused_by_the_queue"] > 0
