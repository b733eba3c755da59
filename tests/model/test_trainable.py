"""Contexts of other paths: what a role reads under a sharing scheme, against the plain forward pass."""

import json
import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from agentrt.errors import AdapterError, UsageError
from agentrt.evaluate.forced import Call, Sample, force
from agentrt.model.backbone import Backbone
from agentrt.model.tiny import TinyFamily, tiny_adapter, tiny_model
from agentrt.model.trainable import Context, LoraSettings, TrainableAdapter
from agentrt.schemes.make import make_scheme

TOKENS = torch.tensor([5, 9, 17, 33, 65, 129, 2, 4, 8, 16, 32, 64])
OWN = torch.tensor([4, 5, 6, 9, 10, 11])
LORA = LoraSettings(rank=4, alpha=10)


def make(tmp_path: Path, *, other: bool = True, fill: bool = True, **model: object) -> TrainableAdapter:
    backbone = tiny_model(**model)  # type: ignore[arg-type]
    folder = tiny_adapter(backbone, tmp_path / "other", seed=3) if other else None
    learner = TrainableAdapter(backbone, f"agentrt/tiny-{model.get('family', 'llama')}", LORA, other=folder)
    if fill:
        generator = torch.Generator().manual_seed(1)
        with torch.no_grad():
            for weight in learner.parameters.values():
                weight.copy_(torch.randn(weight.shape, generator=generator) * 0.2)
    return learner


pytestmark = pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")


@pytest.mark.parametrize("family", ["llama", "mistral", "qwen2", "qwen3"])
def test_all_rows_being_own_rows_equals_the_plain_forward(tmp_path: Path, family: TinyFamily) -> None:
    window = {} if family == "llama" else {"sliding_window": 5}
    learner = make(tmp_path, family=family, **window)
    everything = torch.arange(len(TOKENS))
    with torch.no_grad():
        plain = learner.logits(TOKENS[None], everything)
        for context in ("own", "other_lr", "other", "neutral_lr", "neutral"):
            shared = learner.shared_logits(TOKENS, everything, everything, context)  # type: ignore[arg-type]
            assert torch.allclose(shared, plain, atol=1e-4)


def test_a_fresh_adapter_over_a_neutral_context_is_the_backbone(tmp_path: Path) -> None:
    plain = tiny_model()(TOKENS[None]).logits[0, OWN]
    learner = make(tmp_path, fill=False)
    with torch.no_grad():
        assert torch.allclose(learner.shared_logits(TOKENS, OWN, OWN, "neutral_lr"), plain, atol=1e-4)


def test_each_context_gives_other_logits_and_gradients_to_all_weights(tmp_path: Path) -> None:
    learner = make(tmp_path)
    seen = []
    for context in ("own", "other_lr", "other", "neutral_lr", "neutral"):
        logits = learner.shared_logits(TOKENS, OWN, OWN[3:], context)  # type: ignore[arg-type]
        assert logits.shape == (3, 211)
        seen.append(logits.detach())
        for weight in learner.parameters.values():
            weight.grad = None
        logits.square().sum().backward()
        assert all(weight.grad is not None and weight.grad.abs().sum() > 0 for weight in learner.parameters.values())
    for index, one in enumerate(seen):
        assert not any(torch.allclose(one, two, atol=1e-3) for two in seen[index + 1 :])


def test_the_other_adapter_is_neither_trained_nor_saved(tmp_path: Path) -> None:
    learner = make(tmp_path)
    assert not any("other" in name for name in learner.parameters)
    learner.shared_logits(TOKENS, OWN, OWN, "other").sum().backward()
    with torch.no_grad():
        plain = learner.logits(TOKENS[None], OWN)
    learner.save(tmp_path / "saved")
    again = TrainableAdapter(tiny_model(), "agentrt/tiny-llama", LORA, other=tmp_path / "saved")
    with torch.no_grad():
        everything = again.shared_logits(TOKENS, OWN[:1], OWN[:1], "other")
    assert plain.shape == (6, 211)
    assert everything.shape == (1, 211)


def test_training_goes_on_from_a_saved_adapter_of_the_same_shape(tmp_path: Path) -> None:
    learner = make(tmp_path)
    with torch.no_grad():
        for weight in learner.parameters.values():
            weight.copy_(weight.to(torch.bfloat16))  # as it is stored
        expected = learner.logits(TOKENS[None], OWN)
    learner.save(tmp_path / "saved")
    again = TrainableAdapter(tiny_model(), "agentrt/tiny-llama", LORA, start=tmp_path / "saved")
    with torch.no_grad():
        assert torch.allclose(again.logits(TOKENS[None], OWN), expected, atol=1e-5)
    for other in (LoraSettings(rank=8, alpha=10), LoraSettings(rank=4, targets=("v_proj",))):
        with pytest.raises(AdapterError, match="not an adapter to train on from"):
            TrainableAdapter(tiny_model(), "agentrt/tiny-llama", other, start=tmp_path / "saved")
    with pytest.raises(AdapterError, match="not an adapter to train on from"):
        TrainableAdapter(tiny_model(), "agentrt/tiny-llama", LORA, start=tmp_path / "absent")


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"lora_alpha": 4}, "has rank 4 and scaling 1, this training scaling 2.5"),
        ({"use_rslora": True}, "has rank 4 and scaling 5 with rsLoRA, this training scaling 2.5"),
        ({"alpha_pattern": {"v_proj": 20}}, "v_proj has rank 4 and scaling 5, this"),
        ({"base_model_name_or_path": "other/base"}, "trained for base model 'other/base', the backbone is 'agentrt/t"),
        ({"use_dora": True}, "use_dora: DoRA rescales"),
    ],
)
def test_an_adapter_that_another_configuration_trained_is_not_trained_on(
    tmp_path: Path, changes: dict[str, object], told: str
) -> None:
    make(tmp_path).save(tmp_path / "saved")
    path = tmp_path / "saved" / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    with pytest.raises(AdapterError, match=f"not an adapter to train on from: .*{re.escape(told)}"):
        TrainableAdapter(tiny_model(), "agentrt/tiny-llama", LORA, start=tmp_path / "saved")


@pytest.mark.parametrize("length", [0, 5, 200, -8])
def test_weights_that_are_damaged_are_refused_by_name(tmp_path: Path, length: int) -> None:
    make(tmp_path).save(tmp_path / "saved")
    path = tmp_path / "saved" / "adapter_model.safetensors"
    path.write_bytes(path.read_bytes()[:length])
    for way in ("start", "other"):
        folders = {way: tmp_path / "saved"}
        with pytest.raises(AdapterError, match=r"saved.*adapter_model\.safetensors cannot be read"):
            TrainableAdapter(tiny_model(), "agentrt/tiny-llama", LORA, **folders)


def test_a_context_that_cannot_be_had_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="needs that role's adapter"):
        make(tmp_path, other=False).shared_logits(TOKENS, OWN, OWN, "other")
    keys = TrainableAdapter(tiny_model(), "agentrt/tiny-llama", LoraSettings(targets=("k_proj", "v_proj")))
    with pytest.raises(UsageError, match="leave k_proj alone"):
        keys.shared_logits(TOKENS, OWN, OWN, "neutral_lr")


def test_a_shared_a_comes_from_the_seed_and_b_alone_is_trained(tmp_path: Path) -> None:
    shared = LoraSettings(rank=4, alpha=10, shared_a=True)
    learner = TrainableAdapter(tiny_model(), "agentrt/tiny-llama", shared, seed=7)
    assert learner.parameters
    assert all(".lora_B." in name for name in learner.parameters)
    for weight in learner.parameters.values():
        torch.nn.init.ones_(weight)
    for seed, same in ((7, True), (8, False)):
        TrainableAdapter(tiny_model(), "agentrt/tiny-llama", shared, seed=seed).save(tmp_path / str(seed))
        learner.save(tmp_path / "learner")
        ours, theirs = (load_file(tmp_path / name / "adapter_model.safetensors") for name in ("learner", str(seed)))
        assert all(torch.equal(ours[name], theirs[name]) == same for name in ours if "lora_A" in name)


def test_a_neutral_context_is_neither_an_own_one_nor_one_with_low_rank_values(tmp_path: Path) -> None:
    learner = make(tmp_path, other=False)
    own, rows = torch.arange(7, 12), torch.arange(8, 12)
    with torch.no_grad():
        ours = learner.shared_logits(TOKENS, own, rows, "neutral")
        plain = learner.logits(TOKENS[None], rows)
        low_rank = learner.shared_logits(TOKENS, own, rows, "neutral_lr")
    assert not torch.allclose(ours, plain, atol=1e-3)
    assert not torch.allclose(ours, low_rank, atol=1e-3)


PREAMBLE = (3, 7, 11)
CALLS = (
    Call("plan", (5, 9, 17), (33, 65)),
    Call("plan", (2,), (4, 8, 16)),
    Call("action", (21,), (22, 23)),
    Call("plan", (32, 64, 31), (30, 29, 28)),
)
SAMPLE = Sample("three turns of plan, two in a row", PREAMBLE, CALLS)
BACKBONES = {
    "llama": {},
    "mistral": {"family": "mistral", "sliding_window": 5},
    "qwen3": {"family": "qwen3"},
}


@pytest.mark.parametrize("name", BACKBONES)
@pytest.mark.parametrize(("context", "scheme"), [("neutral_lr", "rebase_shared"), ("own", "non_shared")])
def test_a_role_learns_from_the_logits_that_it_is_served_with(
    tmp_path: Path, name: str, context: Context, scheme: str
) -> None:
    learner = make(tmp_path, other=False, **BACKBONES[name])
    learner.save(tmp_path / "plan")
    backbone = Backbone(tiny_model(**BACKBONES[name]))
    action = tiny_adapter(tiny_model(**BACKBONES[name]), tmp_path / "action", seed=5)
    adapters = backbone.load_adapters({"plan": tmp_path / "plan", "action": action})
    served = force(make_scheme(scheme), backbone, adapters, SAMPLE).logits
    own, since, rows = [], [], []
    for reading, call in zip(SAMPLE.readings, CALLS, strict=True):
        if reading.agent == "plan":
            own += range(reading.start, reading.end)
            since += [max(reading.start, len(PREAMBLE))] * (reading.end - reading.start)
            rows += range(reading.end - len(call.generated), reading.end)
    mine = torch.tensor([author == "plan" for author in SAMPLE.authors])
    with torch.no_grad():
        for weight in learner.parameters.values():
            weight.copy_(weight.to(torch.bfloat16))  # as it is stored
        learnt = learner.shared_logits(
            torch.tensor(SAMPLE.token_ids), *(torch.tensor(each) for each in (own, rows)), context, torch.tensor(since)
        )
    assert torch.allclose(learnt, served[mine], atol=1e-3)
