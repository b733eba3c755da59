"""A backbone in memory equals the one on disk; what cannot be served is refused by name and reason."""

import json
import os
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import PreTrainedModel
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from agentrt.errors import BackboneError
from agentrt.model.families import supported
from agentrt.model.hashing import hash_folder, hash_weights
from agentrt.model.load import choose_device, choose_dtype, load_model
from agentrt.model.tiny import TINY_FAMILIES, TinyFamily, tiny_adapter, tiny_model, tiny_tokenizer
from agentrt.model.tokenizer import Tokenizer

PROMPT = torch.tensor([[5, 77, 3, 140, 9, 9, 31]])


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTRT_CACHE", str(tmp_path / "cache"))


def _save(model: PreTrainedModel, folder: Path, **options: Any) -> Path:
    model.save_pretrained(folder, **options)
    (folder / "tokenizer.json").write_text(tiny_tokenizer().specification(), "utf-8")
    return folder


@pytest.mark.parametrize("family", TINY_FAMILIES)
def test_a_folder_gives_the_same_model(family: TinyFamily, tmp_path: Path) -> None:
    model = tiny_model(family, vocab_size=259)
    loaded = load_model(str(_save(model, tmp_path / "m")), dtype="float32", device="cpu", offline=True)
    assert torch.equal(loaded.model(PROMPT).logits, model(PROMPT).logits)
    assert loaded.content_hash == hash_weights(model) == hash_weights(loaded.model)
    assert loaded.name == str(tmp_path / "m")
    assert not loaded.model.training
    assert not any(weight.requires_grad for weight in loaded.model.parameters())
    assert loaded.tokenizer.decode(loaded.tokenizer.encode("Thought: I need")) == "Thought: I need"


def test_the_content_hash_is_of_the_weights_not_of_the_files(tmp_path: Path) -> None:
    model = tiny_model(vocab_size=259, tie_word_embeddings=True)
    whole = hash_folder(_save(model, tmp_path / "whole"))
    sharded = _save(model, tmp_path / "sharded", max_shard_size="40KB")
    assert len(list(sharded.glob("*.safetensors"))) > 1
    assert hash_folder(sharded) == whole == hash_weights(model)
    assert load_model(str(sharded), dtype="bfloat16").content_hash == whole
    model.model.norm.weight[3] += 1e-3
    assert hash_weights(model) != whole


@pytest.mark.parametrize("kind", ["truncated", "lacking", "no header", "other shape"])
def test_damaged_weights_are_refused(kind: str, tmp_path: Path) -> None:
    folder = _save(tiny_model(vocab_size=259), tmp_path / "m")
    path = folder / "model.safetensors"
    weights = load_file(path)
    if kind == "truncated":
        os.truncate(path, path.stat().st_size - 100)
    elif kind == "no header":
        path.write_bytes(b"")
    elif kind == "lacking":
        del weights["model.layers.1.mlp.up_proj.weight"]
        save_file(weights, path, {"format": "pt"})
    else:
        weights["model.norm.weight"] = torch.zeros(13)
        save_file(weights, path, {"format": "pt"})
    with pytest.raises(BackboneError, match=r"damaged|model.layers.1.mlp.up_proj.weight|cannot be loaded"):
        load_model(str(folder))


def test_a_tokenizer_of_another_model_is_refused(tmp_path: Path) -> None:
    folder = _save(tiny_model(vocab_size=211), tmp_path / "m")
    with pytest.raises(BackboneError, match="the tokenizer has 259 ids but the model only 211"):
        load_model(str(folder))


def test_a_config_of_an_unknown_kind_is_refused(tmp_path: Path) -> None:
    folder = _save(tiny_model(vocab_size=259), tmp_path / "m")
    (folder / "config.json").write_text(json.dumps({"model_type": "from_the_future"}))
    with pytest.raises(BackboneError, match="from_the_future"):
        load_model(str(folder))


@pytest.mark.parametrize(
    ("family", "options", "reason"),
    [
        ("deepseek_v3", {}, "latent attention"),
        ("qwen3_next", {}, "linear attention"),
        ("gemma3n_text", {}, "share one layer's keys and values"),
        ("phi3", {"pad_token_id": 0}, "fused"),
        ("falcon", {}, "fused"),
        ("gpt_neox", {}, "fused"),
        ("gemma2", {}, "soft-capped"),
        ("gpt_oss", {}, "sinks|kind"),
        ("olmo2", {}, "not tested"),
        ("t5", {}, "encoder-decoder"),
        ("llama", {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}}, "changes with"),
        ("mistral3", {}, "multimodal"),
    ],
)
def test_other_families_are_refused_with_the_reason(family: str, options: dict[str, Any], reason: str) -> None:
    with pytest.raises(BackboneError, match=reason) as caught:
        supported(CONFIG_MAPPING[family](**options))
    assert f"'{family}'" in str(caught.value)


@pytest.mark.parametrize(
    ("device", "facts", "expected"),
    [
        ("cuda", "", torch.bfloat16),
        ("cpu", "flags : fpu amx_bf16 sse", torch.bfloat16),
        ("cpu", "flags : avx512_bf16", torch.bfloat16),
        ("cpu", "flags : avx512f amx_tile", torch.float32),
        ("mps", "flags : amx_bf16", torch.float32),
    ],
)
def test_dtype_auto_is_bf16_where_it_is_fast(device: str, facts: str, expected: torch.dtype) -> None:
    assert choose_dtype("auto", torch.device(device), cpu_facts=facts) == expected


def test_a_dtype_or_device_that_does_not_exist_is_refused() -> None:
    with pytest.raises(BackboneError, match="use one of float32"):
        choose_dtype("float8", torch.device("cpu"))  # type: ignore[arg-type]
    with pytest.raises(BackboneError, match="use one of float32"):
        choose_dtype(torch.int8, torch.device("cpu"))
    with pytest.raises(BackboneError, match="use cpu or auto"):
        choose_device("warp")


def test_an_adapter_is_made_without_touching_the_model(tmp_path: Path) -> None:
    model = tiny_model()
    before = hash_weights(model)
    first = tiny_adapter(
        model, tmp_path / "a", seed=1, targets=["v_proj"], rank_pattern={"layers.1.self_attn.v_proj": 3}
    )
    second = tiny_adapter(model, tmp_path / "b", seed=1, targets=["v_proj"], zero_b=True)
    assert hash_weights(model) == before
    a, b = load_file(first / "adapter_model.safetensors"), load_file(second / "adapter_model.safetensors")
    key = "base_model.model.model.layers.{}.self_attn.v_proj.lora_{}.weight"
    assert [a[key.format(layer, "A")].shape[0] for layer in range(3)] == [4, 3, 4]
    assert torch.equal(a[key.format(0, "A")], b[key.format(0, "A")])
    assert a[key.format(0, "B")].abs().min() > 0
    assert not b[key.format(0, "B")].any()


def _write_gguf(model: PreTrainedModel, path: Path, *, split: str, leave_out: str = "") -> dict[str, torch.Tensor]:
    """A GGUF file as llama.cpp's converter makes it: q and k rows permuted, the MLP in Q4_1. Returns its weights."""
    config = model.config
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("Tiny")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    spec = json.loads(tiny_tokenizer([("1", "2"), ("\u010a", "\u010a")]).specification())
    vocabulary = sorted(spec["model"]["vocab"], key=spec["model"]["vocab"].__getitem__)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(split)
    writer.add_token_list(vocabulary)
    writer.add_token_types([gguf.TokenType.CONTROL] * 3 + [gguf.TokenType.NORMAL] * (len(vocabulary) - 3))
    writer.add_token_merges(["1 2", "\u010a \u010a"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)
    stored = {}
    for name, weight in model.state_dict().items():
        if name == leave_out:
            continue
        array = weight.float().numpy()
        for part, heads in (("q_proj", config.num_attention_heads), ("k_proj", config.num_key_value_heads)):
            if part in name:
                halves = array.reshape(heads, 2, array.shape[0] // heads // 2, array.shape[1])
                array = halves.swapaxes(1, 2).reshape(array.shape)
        kind = gguf.GGMLQuantizationType.F32
        stored[name] = weight
        if "mlp" in name:
            kind = gguf.GGMLQuantizationType.Q4_1
            array = gguf.quants.quantize(array, kind)
            stored[name] = torch.from_numpy(gguf.quants.dequantize(array, kind))
        writer.add_tensor(names.get_name(name, try_suffixes=(".weight",)), np.ascontiguousarray(array), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return stored


def _ggufable() -> PreTrainedModel:
    return tiny_model(vocab_size=261, layers=2, hidden_size=64, num_attention_heads=8, intermediate_size=96)


def test_a_gguf_file_gives_its_dequantised_weights_and_its_tokenizer(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    stored = _write_gguf(_ggufable(), tmp_path / "tiny.gguf", split="smollm")
    stages: dict[str, float] = {}
    loaded = load_model(
        str(tmp_path / "tiny.gguf"),
        dtype="float32",
        report=lambda stage, done, total: stages.update({stage: done / total}),
    )
    found = dict(loaded.model.named_parameters())
    assert found.keys() == stored.keys()
    for name, weight in stored.items():
        assert torch.equal(found[name], weight.bfloat16().float()), name
    tokenizer: Tokenizer = loaded.tokenizer
    assert tokenizer.eos_ids == (2,)
    assert (
        tokenizer.decode(tokenizer.encode("Thought: I need <|im_end|> \u00e9")) == "Thought: I need <|im_end|> \u00e9"
    )
    texts = [tokenizer.token_text(token) for token in tokenizer.encode("a\n\n12")]
    assert texts == ["a", "\n\n", "1", "2"]  # every digit by itself, and what is before it as if at the end
    assert stages["Reading tiny.gguf"] == 1.0
    assert stages["Converting and de-quantizing GGUF tensors"] == 1.0
    assert capfd.readouterr() == ("", "")


def test_a_gguf_file_whose_text_splitting_is_unknown_is_refused(tmp_path: Path) -> None:
    _write_gguf(_ggufable(), tmp_path / "tiny.gguf", split="viking")
    with pytest.raises(BackboneError, match=r"splits text in a way \('viking'\)"):
        load_model(str(tmp_path / "tiny.gguf"))


def test_a_gguf_file_that_lacks_weights_is_refused_and_not_kept(tmp_path: Path) -> None:
    name = "model.layers.1.self_attn.o_proj.weight"
    _write_gguf(_ggufable(), tmp_path / "tiny.gguf", split="smollm", leave_out=name)
    with pytest.raises(BackboneError, match=f"lacks 1 weights of a llama model, among them {name}"):
        load_model(str(tmp_path / "tiny.gguf"))
    assert not list((tmp_path / "cache" / "models").glob("gguf-*"))


def test_a_file_that_is_no_gguf_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.gguf").write_bytes(b"not at all" * 10)
    with pytest.raises(BackboneError, match="no GGUF file with a tokenizer, or is damaged"):
        load_model(str(tmp_path / "x.gguf"))


@pytest.mark.real_model
def test_the_default_backbone_writes_english(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AGENTRT_CACHE")
    try:
        loaded = load_model("smollm2-135m", dtype="float32", offline=True)
    except BackboneError:
        pytest.skip("the default backbone is not in the cache; run `agentrt models fetch`")
    tokenizer = loaded.tokenizer
    assert tokenizer.encode("Thought: I need") == [1082, 3779, 42, 339, 737]
    assert [tokenizer.token_text(token) for token in (0, 1, 2)] == ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    ids = tokenizer.encode("The capital of France is")
    with torch.inference_mode():
        for _ in range(2):
            ids.append(int(loaded.model(torch.tensor([ids])).logits[0, -1].argmax()))
    assert tokenizer.decode(ids).startswith("The capital of France is Paris")
