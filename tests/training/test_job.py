"""A role's training leaves a served adapter, a card that names no machine, a log, and no checkpoint behind."""

import json
from pathlib import Path

import pytest
import torch
from transformers import PreTrainedModel

from agentrt.errors import DataError
from agentrt.model.load import LoadedModel
from agentrt.model.tiny import tiny_model
from agentrt.model.tokenizer import Tokenizer
from agentrt.model.trainable import LoraSettings
from agentrt.training.examples import Recorded, RecordedSpan
from agentrt.training.job import train_role
from agentrt.training.settings import TrainSettings
from agentrt.training.trainer import StepFacts

SETTINGS = TrainSettings(passes=3, learning_rate=1e-2, warmup_steps=2, held_out=0.2, seed=5)
LORA = LoraSettings(rank=4, alpha=8)
DATA = {"files": [{"name": "questions.jsonl", "sha256": "00", "bytes": 1}], "trajectories": 12}


def tiny_loaded() -> LoadedModel:
    model: PreTrainedModel = tiny_model()
    no_tokenizer: Tokenizer = None  # type: ignore[assignment]  # training works on token ids
    return LoadedModel(model, no_tokenizer, ("agentrt/tiny-llama",), "0" * 64, Path("/a/private/folder"))


def make_recorded(count: int = 12) -> list[Recorded]:
    """plan writes 7 8 9 behind any question, and action 5."""
    spans = (
        RecordedSpan(0, 6, "user", "question"),
        RecordedSpan(6, 9, "plan", "thought"),
        RecordedSpan(9, 10, "action", "argument"),
    )
    return [
        Recorded(f"q{n}/0-none", f"q{n}", (*((n * k + k) % 50 + 20 for k in range(6)), 7, 8, 9, 5), spans)
        for n in range(count)
    ]


def test_a_trained_role_is_served_and_documented(tmp_path: Path) -> None:
    steps: list[StepFacts] = []
    folder = tmp_path / "adapters" / "plan"
    loaded = tiny_loaded()
    result = train_role(
        "plan",
        make_recorded(),
        DATA,
        loaded,
        lora=LORA,
        settings=SETTINGS,
        out=tmp_path / "out",
        adapter_folder=folder,
        report=steps.append,
    )
    assert result.last_loss < result.losses[0]
    assert sorted(path.name for path in folder.iterdir()) == [
        "adapter_config.json",
        "adapter_model.safetensors",
        "card.json",
    ]
    text = (folder / "card.json").read_text()
    card = json.loads(text)
    assert str(tmp_path) not in text
    assert "private" not in text
    assert card["role"] == "plan"
    assert card["base_model"] == "agentrt/tiny-llama"
    assert card["data"]["files"] == DATA["files"]
    assert card["data"]["examples"] + card["data"]["held_out_examples"] == 12
    assert card["result"]["finished"] is True
    assert card["result"]["steps"] == len(steps) == result.steps
    assert set(card["versions"]) == {"python", "agentrt", "torch", "transformers", "peft"}
    log = [json.loads(line) for line in (tmp_path / "out" / "plan" / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in log] == list(range(1, result.steps + 1))
    assert not (tmp_path / "out" / "plan" / "checkpoint.pt").exists()
    assert "/a/private" not in (folder / "adapter_config.json").read_text()


def test_equal_training_gives_equal_files(tmp_path: Path) -> None:
    for name in ("one", "two"):
        train_role(
            "action",
            make_recorded(),
            DATA,
            tiny_loaded(),
            lora=LORA,
            settings=SETTINGS,
            out=tmp_path / name,
            adapter_folder=tmp_path / name / "adapter",
        )
    for file in ("adapter_config.json", "adapter_model.safetensors"):
        one, two = ((tmp_path / name / "adapter" / file).read_bytes() for name in ("one", "two"))
        assert one == two


def test_the_tuned_weights_differ_between_roles(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    for role in ("plan", "action"):
        train_role(
            role,
            make_recorded(),
            DATA,
            tiny_loaded(),
            lora=LORA,
            settings=SETTINGS,
            out=tmp_path,
            adapter_folder=tmp_path / role,
        )
    plan, action = (load_file(tmp_path / role / "adapter_model.safetensors") for role in ("plan", "action"))
    assert plan.keys() == action.keys()
    assert all(weight.dtype == torch.bfloat16 for weight in plan.values())
    assert not any(torch.equal(plan[name], action[name]) for name in plan if "lora_B" in name)


def test_a_role_that_wrote_nothing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no trajectory holds a field of the role 'reflect'"):
        train_role(
            "reflect",
            make_recorded(),
            DATA,
            tiny_loaded(),
            lora=LORA,
            settings=SETTINGS,
            out=tmp_path,
            adapter_folder=tmp_path,
        )
