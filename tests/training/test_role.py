"""A role's training leaves a whole adapter folder or none, a card that names no machine, and goes on after a kill."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import PreTrainedModel

from agentrt.errors import AdapterError, DataError, UsageError
from agentrt.model.load import LoadedModel
from agentrt.model.tiny import tiny_model
from agentrt.model.tokenizer import Tokenizer
from agentrt.model.trainable import LoraSettings
from agentrt.training.examples import Recorded, RecordedSpan
from agentrt.training.role import RoleJob, backbone_of, train_role
from agentrt.training.settings import TrainSettings
from agentrt.training.trainer import StepFacts, TrainResult

SETTINGS = TrainSettings(passes=3, learning_rate=1e-2, warmup_steps=2, held_out=0.2, seed=5)
LORA = LoraSettings(rank=4, alpha=8)
DATA = {
    "files": [{"name": "questions.jsonl", "sha256": "00", "bytes": 1}],
    "trajectories": 12,
    "licence": "CC0",
    "skipped": {"it has no supporting facts": 3},
}


def tiny_loaded() -> LoadedModel:
    model: PreTrainedModel = tiny_model()
    no_tokenizer: Tokenizer = None  # type: ignore[assignment]  # training works on token ids
    return LoadedModel(model, no_tokenizer, ("agentrt/tiny-llama",), "0" * 64, Path("/a/private/folder"))


BACKBONE = {"backbone": "0" * 64, "dtype": "torch.float32"}


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


def make_job(out: Path, role: str = "plan", **changes: Any) -> RoleJob:
    job = RoleJob(role, "agentrt/tiny-llama", out, out / "adapters", LORA, SETTINGS)
    return replace(job, **changes)


def train(job: RoleJob, report: Callable[[StepFacts], None] = lambda facts: None) -> TrainResult:
    return train_role(job, make_recorded(), DATA, tiny_loaded, backbone=BACKBONE, report=report)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = load_file(folder / "adapter_model.safetensors")
    return found


class KilledError(Exception):
    """Stands for a kill between two steps."""


def kill_after(steps: int) -> Callable[[StepFacts], None]:
    def report(facts: StepFacts) -> None:
        if facts.step == steps:
            raise KilledError

    return report


def test_a_trained_role_is_documented_and_names_no_machine(tmp_path: Path) -> None:
    steps: list[StepFacts] = []
    job = make_job(tmp_path / "out", adapters=tmp_path / "adapters")
    result = train(job, steps.append)
    folder = tmp_path / "adapters" / "plan"
    assert result.last_loss < result.losses[0]
    names = ["README.md", "adapter_config.json", "adapter_model.safetensors", "card.json"]
    assert sorted(path.name for path in folder.iterdir()) == names
    assert [path.name for path in folder.parent.iterdir()] == ["plan"]
    text, page = (folder / "card.json").read_text(), (folder / "README.md").read_text()
    for written in (text, page, (folder / "adapter_config.json").read_text()):
        assert str(tmp_path) not in written
        assert "private" not in written
    card = json.loads(text)
    assert card["role"] == "plan"
    assert card["base_model"] == "agentrt/tiny-llama"
    assert card["data"]["files"] == DATA["files"]
    assert card["data"]["examples"] + card["data"]["held_out_examples"] == 12
    assert card["result"]["steps"] == len(steps) == result.steps
    assert set(card["versions"]) == {"python", "agentrt", "torch", "transformers", "peft"}
    log = [json.loads(line) for line in (tmp_path / "out" / "plan" / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in log] == list(range(1, result.steps + 1))
    assert not (tmp_path / "out" / "plan" / "checkpoint.pt").exists()


def test_the_readme_tells_what_the_card_holds(tmp_path: Path) -> None:
    train(make_job(tmp_path))
    folder = tmp_path / "adapters" / "plan"
    page, card = (folder / "README.md").read_text(), json.loads((folder / "card.json").read_text())
    thoughts = card["result"]["held_out"]["fields"]["thought"]
    assert thoughts["total"] == card["data"]["held_out_examples"] > 0
    for told in (
        "role `plan`",
        "`agentrt/tiny-llama`",
        "| rank | 4 |",
        "Licence of the data: CC0.",
        "| questions.jsonl | `00` |",
        "3 because it has no supporting facts",
        "seed 5",
        f"{card['data']['examples']} examples to learn from; {thoughts['total']}, those of",
        f"{card['data']['held_out_questions']} questions, were held out",
        f"thought {thoughts['right']} of {thoughts['total']}",
        f"| peft | {card['versions']['peft']} |",
    ):
        assert told in page


def test_a_card_without_a_held_out_question_says_so(tmp_path: Path) -> None:
    train(make_job(tmp_path, settings=replace(SETTINGS, held_out=0.0)))
    folder = tmp_path / "adapters" / "plan"
    assert json.loads((folder / "card.json").read_text())["data"]["held_out_questions"] == 0
    assert "None: no question fell into the share that is held out" in (folder / "README.md").read_text()


def test_equal_training_gives_equal_files(tmp_path: Path) -> None:
    for name in ("one", "two"):
        train(make_job(tmp_path / name, "action"))
    for file in ("adapter_config.json", "adapter_model.safetensors"):
        one, two = ((tmp_path / name / "adapters" / "action" / file).read_bytes() for name in ("one", "two"))
        assert one == two


def test_the_tuned_weights_differ_between_roles(tmp_path: Path) -> None:
    for role in ("plan", "action"):
        train(make_job(tmp_path, role))
    plan, action = (weights(tmp_path / "adapters" / role) for role in ("plan", "action"))
    assert plan.keys() == action.keys()
    assert all(weight.dtype == torch.bfloat16 for weight in plan.values())
    assert not any(torch.equal(plan[name], action[name]) for name in plan)


def test_a_shared_a_is_the_same_in_all_roles_and_b_is_not(tmp_path: Path) -> None:
    for role in ("plan", "action"):
        train(make_job(tmp_path, role, lora=replace(LORA, shared_a=True)))
    plan, action = (weights(tmp_path / "adapters" / role) for role in ("plan", "action"))
    for name in plan:
        assert torch.equal(plan[name], action[name]) == ("lora_A" in name), name
    again = make_job(tmp_path, lora=replace(LORA, shared_a=True), start=tmp_path / "adapters" / "plan")
    assert train(again).steps
    with pytest.raises(AdapterError, match="is not the A of this seed"):
        train(replace(again, settings=replace(SETTINGS, seed=6)))


def test_a_killed_training_leaves_no_adapter_and_ends_as_one_that_was_not(tmp_path: Path) -> None:
    train(make_job(tmp_path / "whole"))
    job = make_job(tmp_path / "killed", checkpoint_every_s=0.0)
    with pytest.raises(KilledError):
        train(job, kill_after(7))
    assert not job.adapters.exists()
    seen: list[StepFacts] = []
    result = train(replace(job, resume=True), seen.append)
    assert seen[0].step == 7, "the checkpoint was written after step 6"
    assert result.steps == seen[-1].step
    whole, killed = (weights(tmp_path / name / "adapters" / "plan") for name in ("whole", "killed"))
    assert all(torch.equal(whole[name], killed[name]) for name in whole)


def test_an_adapter_that_is_there_stays_until_the_new_one_is_whole(tmp_path: Path) -> None:
    job = make_job(tmp_path)
    train(job)
    before = (job.adapter_folder / "adapter_model.safetensors").read_bytes()
    other = replace(job, settings=replace(SETTINGS, learning_rate=2e-2))
    with pytest.raises(KilledError):
        train(other, kill_after(3))
    assert (job.adapter_folder / "adapter_model.safetensors").read_bytes() == before
    train(other)
    assert (job.adapter_folder / "adapter_model.safetensors").read_bytes() != before


def test_a_training_that_diverges_publishes_nothing_and_says_what_to_change(tmp_path: Path) -> None:
    def spoilt() -> LoadedModel:
        loaded = tiny_loaded()
        next(loaded.model.parameters()).data[:] = torch.nan
        return loaded

    job = make_job(tmp_path)
    train(job)
    before = (job.adapter_folder / "adapter_model.safetensors").read_bytes()
    told = r"training plan diverged at step 1 of \d+: loss nan, .* lower learning rate than 0.01, as --lr 0.0025"
    with pytest.raises(UsageError, match=told):
        train_role(job, make_recorded(), DATA, spoilt, backbone=BACKBONE)
    assert (job.adapter_folder / "adapter_model.safetensors").read_bytes() == before
    assert not (tmp_path / "plan" / "finished.json").exists()


def test_a_finished_role_is_kept_without_loading_a_model(tmp_path: Path) -> None:
    def refuse() -> LoadedModel:
        raise AssertionError("nothing is left to train")

    job = make_job(tmp_path)
    result, again = train(job), replace(job, resume=True)
    assert train_role(again, make_recorded(), DATA, refuse, backbone=BACKBONE).to_json() == result.to_json()
    (job.adapter_folder / "adapter_model.safetensors").unlink()
    assert train(again).steps == result.steps, "trained anew where the adapter is gone"


@pytest.mark.parametrize(
    ("what", "changes"),
    [
        ("settings", {"settings": replace(SETTINGS, passes=4)}),
        ("adapter shape", {"lora": replace(LORA, rank=8)}),
    ],
)
def test_what_was_trained_otherwise_is_not_gone_on_with(tmp_path: Path, what: str, changes: dict[str, Any]) -> None:
    job = make_job(tmp_path, checkpoint_every_s=0.0)
    other = replace(job, resume=True, **changes)
    with pytest.raises(KilledError):
        train(job, kill_after(2))
    with pytest.raises(UsageError, match=f"checkpoint.pt was written with other {what}"):
        train(other)
    train(job)
    with pytest.raises(UsageError, match=f"finished.json was written with other {what}"):
        train(other)


@pytest.mark.parametrize(("what", "value"), [("backbone", "1" * 64), ("dtype", "torch.bfloat16")])
def test_a_run_on_another_backbone_is_not_gone_on_with(tmp_path: Path, what: str, value: str) -> None:
    job = make_job(tmp_path, checkpoint_every_s=0.0)
    other = BACKBONE | {what: value}
    with pytest.raises(KilledError):
        train(job, kill_after(2))
    for state in ("checkpoint.pt", "finished.json"):
        with pytest.raises(UsageError, match=f"{state} was written with other {what}; train anew"):
            train_role(replace(job, resume=True), make_recorded(), DATA, tiny_loaded, backbone=other)
        train(job)


def test_trajectories_of_another_backbone_are_not_learnt_from(tmp_path: Path) -> None:
    data = DATA | {"backbone_sha256": "1" * 64}
    with pytest.raises(UsageError, match=r"another backbone than agentrt/tiny-llama, .* derive them again"):
        train_role(make_job(tmp_path), make_recorded(), data, tiny_loaded, backbone=BACKBONE)


def test_a_backbone_is_known_by_what_it_holds_and_loads_nothing(tmp_path: Path) -> None:
    for name, seed in (("one", 0), ("same", 0), ("other", 3)):
        tiny_model(seed=seed).save_pretrained(tmp_path / name)
    told = {
        name: backbone_of(make_job(tmp_path, model=str(tmp_path / name), dtype="float32", device="cpu"))
        for name in ("one", "same", "other")
    }
    assert told["one"] == told["same"] != told["other"]
    assert told["one"]["dtype"] == "torch.float32"


def test_a_damaged_card_of_the_start_is_named_before_training(tmp_path: Path) -> None:
    (tmp_path / "start").mkdir()
    for text, told in (("{", "not JSON"), ("[]", "no card of an adapter")):
        (tmp_path / "start" / "card.json").write_text(text)
        with pytest.raises(UsageError, match=rf"start/card\.json: {told}.*; copy it again"):
            train(make_job(tmp_path, start=tmp_path / "start"))


def test_a_role_that_wrote_nothing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no trajectory in .* holds a field of the role 'reflect'"):
        train(make_job(tmp_path, "reflect"))


def test_a_job_survives_the_way_to_another_process(tmp_path: Path) -> None:
    lora = replace(LORA, invocation=(5, 6), shared_a=True)
    job = make_job(tmp_path, other="plan", start=tmp_path / "s", threads=2, resume=True, lora=lora)
    assert RoleJob.from_json(job.to_json()) == job
    assert RoleJob.from_json(make_job(tmp_path).to_json()) == make_job(tmp_path)
