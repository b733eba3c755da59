"""Adapter folders: what is read, and every feature that is refused by name with its fix."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from agentrt.errors import AdapterError
from agentrt.model.backbone import Backbone
from agentrt.model.lowrank import Site
from agentrt.model.tiny import tiny_adapter, tiny_model


@pytest.fixture(scope="module")
def backbone():
    return Backbone(tiny_model("llama"))


def load(backbone, **folders):
    return backbone.load_adapters(folders)


def edit(folder, **changes):
    path = folder / "adapter_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_orientation_is_flipped_and_scaling_folded_in_once(backbone, tmp_path):
    folder = tiny_adapter(tiny_model("llama"), tmp_path / "a", r=4, alpha=10)
    raw = load_file(folder / "adapter_model.safetensors")
    prefix = "base_model.model.model.layers.1.self_attn.v_proj."
    weights = load(backbone, a=folder).weights["a"][Site(1, "v_proj")]
    assert torch.equal(weights.down, raw[prefix + "lora_A.weight"].T)
    assert torch.allclose(weights.up, 2.5 * raw[prefix + "lora_B.weight"].T)


def test_the_hash_is_of_content_not_of_name_or_folder(backbone, tmp_path):
    model = tiny_model("llama")
    first = tiny_adapter(model, tmp_path / "a", seed=1)
    again = tiny_adapter(model, tmp_path / "b", seed=1)
    other = tiny_adapter(model, tmp_path / "c", seed=2)
    scaled = tiny_adapter(model, tmp_path / "d", seed=1, alpha=11)
    hashes = load(backbone, a=first, b=again, c=other, d=scaled).hashes
    assert hashes["a"] == hashes["b"]
    assert len(set(hashes.values())) == 3
    edit(again, alora_invocation_tokens=[1, 2])
    activated = load(backbone, b=again)
    assert activated.hashes["b"] not in hashes.values()
    assert activated.invocations == {"b": (1, 2)}


def test_shared_a_is_recognised(backbone, tmp_path):
    model = tiny_model("llama")
    first = tiny_adapter(model, tmp_path / "a", seed=1)
    second = tiny_adapter(model, tmp_path / "b", seed=2)
    assert not load(backbone, a=first, b=second).shared_a
    tensors, donor = (load_file(f / "adapter_model.safetensors") for f in (second, first))
    tensors.update({key: value for key, value in donor.items() if "lora_A" in key})
    save_file(tensors, second / "adapter_model.safetensors")
    assert load(backbone, a=first, b=second).shared_a


REFUSALS = [
    ({"use_dora": True}, "use_dora: DoRA rescales.*use_dora=False"),
    ({"bias": "lora_only"}, "bias='lora_only'.*retrain with bias='none'"),
    ({"lora_bias": True}, "lora_bias"),
    ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
    ({"trainable_token_indices": [1]}, "trainable_token_indices"),
    ({"alora_invocation_tokens": []}, "alora_invocation_tokens is .*without one it is never active"),
    ({"alora_invocation_tokens": ["go"]}, "alora_invocation_tokens is .*not a list of token ids"),
    ({"fan_in_fan_out": True}, "fan_in_fan_out=False"),
    ({"layer_replication": [[0, 2]]}, "layer_replication"),
    ({"target_parameters": ["mlp.w"]}, "target the linear modules"),
    ({"init_lora_weights": "pissa_niter_4"}, "changes the base weights; convert"),
    ({"peft_type": "VERA"}, "peft type VERA is not supported"),
    ({"peft_type": "IA3"}, "peft type IA3"),
    ({"peft_type": "PROMPT_TUNING"}, "peft type PROMPT_TUNING"),
    ({"base_model_name_or_path": "meta-llama/Llama-3.1-8B"}, "trained for base model 'meta-llama/Llama-3.1-8B'"),
]


@pytest.mark.parametrize(("changes", "message"), REFUSALS, ids=lambda x: next(iter(x)) if isinstance(x, dict) else "")
def test_what_cannot_be_served_exactly_is_refused_by_name(backbone, tmp_path, changes, message):
    folder = tiny_adapter(tiny_model("llama"), tmp_path / "a")
    edit(folder, **changes)
    with pytest.raises(AdapterError, match=rf"adapter 'plan' \(.*\): .*{message}"):
        load(backbone, plan=folder)


def damage(folder, change):
    tensors = load_file(folder / "adapter_model.safetensors")
    change(tensors)
    save_file(tensors, folder / "adapter_model.safetensors")


KEY = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.update({"base_model.model.lm_head.lora_A.weight": torch.zeros(4, 48)}), "lm_head.*is not LoRA"),
        (lambda t: t.update({KEY: torch.zeros(4, 50)}), r"A \[4, 50\].*another base model"),
        (lambda t: t.pop(KEY), "only lora_B; the file is damaged"),
        (
            lambda t: t.update({KEY.replace("layers.0", "layers.9"): torch.zeros(4, 48)}),
            "layer 9 q_proj does not exist.*3 layers",
        ),
    ],
    ids=["lm_head", "shape", "half", "layer"],
)
def test_tensors_that_do_not_fit_are_refused(backbone, tmp_path, change, message):
    folder = tiny_adapter(tiny_model("llama"), tmp_path / "a")
    damage(folder, change)
    with pytest.raises(AdapterError, match=message):
        load(backbone, plan=folder)


def test_missing_and_damaged_files_say_what_to_do(backbone, tmp_path):
    with pytest.raises(AdapterError, match=r"no adapter_config\.json there"):
        load(backbone, plan=tmp_path)
    folder = tiny_adapter(tiny_model("llama"), tmp_path / "a")
    (folder / "adapter_model.safetensors").write_bytes(b"torn")
    with pytest.raises(AdapterError, match=r"cannot be read.*copy or save it again"):
        load(backbone, plan=folder)
    (folder / "adapter_config.json").write_text("{")
    with pytest.raises(AdapterError, match="is not JSON"):
        load(backbone, plan=folder)


def test_a_model_has_one_backbone():
    model = tiny_model("llama")
    Backbone(model)
    with pytest.raises(ValueError, match="share that one"):
        Backbone(model)
