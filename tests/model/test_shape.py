"""A backbone's shape, read from its config alone, is that of the model in memory."""

from pathlib import Path

import pytest

from agentrt.errors import BackboneError
from agentrt.model.backbone import Backbone
from agentrt.model.shape import ModelShape, find_backbone
from agentrt.model.tiny import TINY_FAMILIES, TinyFamily, tiny_model, tiny_tokenizer


@pytest.mark.parametrize("family", TINY_FAMILIES)
def test_the_shape_of_a_folder_is_that_of_the_loaded_model(family: TinyFamily, tmp_path: Path) -> None:
    model = tiny_model(family, vocab_size=259)
    model.config.save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"no weights")
    found = find_backbone(str(tmp_path))
    assert found is not None
    backbone = Backbone(model)
    assert found.shape == ModelShape.of(model.config)
    assert (found.shape.num_layers, found.shape.head_dim) == (backbone.num_layers, backbone.head_dim)
    assert found.projections == backbone.shapes
    assert str(tmp_path) in found.names


def test_what_must_be_fetched_or_converted_first_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTRT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    (tmp_path / "weights.gguf").write_bytes(b"GGUF")
    assert find_backbone(str(tmp_path / "weights.gguf")) is None
    assert find_backbone("nobody/has-this-model") is None


@pytest.mark.parametrize("name", ["./nowhere", "no-such-alias"])
def test_a_name_that_is_no_models_is_refused(name: str) -> None:
    with pytest.raises(BackboneError, match="there is no model"):
        find_backbone(name)


def test_a_family_that_is_not_supported_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "gemma2"}')
    (tmp_path / "model.safetensors").write_bytes(b"")
    (tmp_path / "tokenizer.json").write_text(tiny_tokenizer().specification())
    with pytest.raises(BackboneError, match="'gemma2' are not supported"):
        find_backbone(str(tmp_path))
