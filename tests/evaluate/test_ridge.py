"""Fitting ridge maps: a linear map that is known is found again."""

import copy
import math
import random
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from agentrt.config.trace import TraceConfig
from agentrt.errors import UsageError
from agentrt.evaluate.replay.contestant import EngineContestant, play
from agentrt.evaluate.replay.formulas import expected
from agentrt.evaluate.replay.trace import build_trace, random_contexts
from agentrt.evaluate.ridge import fit_ridge, write_ridge
from agentrt.model.backbone import Backbone
from agentrt.model.tiny import tiny_adapter, tiny_model
from agentrt.schemes.make import make_scheme


def contexts(count: int, length: int) -> list[list[int]]:
    rng = random.Random(3)
    return [[rng.randrange(211) for _ in range(length)] for _ in range(count)]


def linear_adapter(folder: Path, maps: dict[str, torch.Tensor]) -> Path:
    """An adapter of layer 0 alone, that turns its keys and values into known linear maps of themselves.

    maps: [heads, d, d] by projection; with x W' = (x W) M the low-rank term is W' - W, of rank heads * d.
    """
    model = tiny_model("llama")
    targets = list(maps)
    tiny_adapter(model, folder, r=16, alpha=16, targets=targets, layers_to_transform=[0])
    tensors = load_file(folder / "adapter_model.safetensors")
    for projection, each in maps.items():
        weight = getattr(model.model.layers[0].self_attn, projection).weight  # [heads * d, d_in]
        delta = torch.block_diag(*each).T @ weight - weight
        prefix = f"base_model.model.model.layers.0.self_attn.{projection}"
        tensors[f"{prefix}.lora_A.weight"] = delta.contiguous()
        tensors[f"{prefix}.lora_B.weight"] = torch.eye(16)
    save_file(tensors, folder / "adapter_model.safetensors")
    return folder


def test_a_known_linear_map_is_recovered(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(1)
    maps = {name: torch.eye(8) + torch.randn(2, 8, 8, generator=generator) for name in ("k_proj", "v_proj")}
    backbone = Backbone(tiny_model("llama"))
    adapters = backbone.load_adapters({"plan": linear_adapter(tmp_path / "plan", maps)})
    fit = fit_ridge(backbone, adapters, contexts(6, 150), penalty=1e-6)
    found = fit.maps["plan"]
    assert fit.num_tokens == 900
    torch.testing.assert_close(found.keys[0], maps["k_proj"], rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(found.values[0], maps["v_proj"], rtol=1e-3, atol=1e-3)
    assert int(found.gains.argmax()) == 0
    shrunk = fit_ridge(backbone, adapters, contexts(6, 150)).maps["plan"]
    assert 0 < (shrunk.keys[0] - maps["k_proj"]).norm() < 0.2 * maps["k_proj"].norm()


def test_an_adapter_that_does_nothing_has_the_identity_and_no_gain(tmp_path: Path) -> None:
    model = tiny_model("qwen3")
    backbone = Backbone(copy.deepcopy(model))
    adapters = backbone.load_adapters({"plan": tiny_adapter(model, tmp_path / "a", zero_b=True)})
    found = fit_ridge(backbone, adapters, contexts(3, 100), penalty=1e-6).maps["plan"]
    for part in (found.keys, found.values):
        torch.testing.assert_close(part, torch.eye(8).expand(3, 2, 8, 8), rtol=1e-3, atol=1e-3)
    assert all(math.isclose(gain, 0, abs_tol=1e-6) for gain in found.gains.tolist())


def test_no_samples_are_refused(tmp_path: Path) -> None:
    model = tiny_model("llama")
    backbone = Backbone(copy.deepcopy(model))
    adapters = backbone.load_adapters({"plan": tiny_adapter(model, tmp_path / "a")})
    for samples in ([], [[1], []]):
        with pytest.raises(UsageError, match="sample contexts"):
            fit_ridge(backbone, adapters, samples)


def test_a_replay_runs_and_holds_what_the_formula_says(tmp_path: Path) -> None:
    model = tiny_model("llama", layers=2)
    backbone = Backbone(copy.deepcopy(model))
    config = TraceConfig.load("react")
    folders = {name: tiny_adapter(model, tmp_path / name, seed=seed) for seed, name in enumerate(config.agents)}
    adapters = backbone.load_adapters(folders)
    file = tmp_path / "maps.safetensors"
    write_ridge(file, fit_ridge(backbone, adapters, contexts(1, 40)), backbone, adapters)
    scheme, trace = make_scheme(f"ridge:{file}"), build_trace(config, "react", 24, config.agents)
    contestant = EngineContestant("ridge", scheme, backbone, adapters, max_tokens=trace.num_tokens)
    run = play(contestant, trace, random_contexts(trace, backbone.vocab_size, 1))
    contestant.close()
    books = expected(scheme, trace, backbone.layout(adapters))
    assert books is not None
    assert {name: getattr(run, name) for name in books._fields} == books._asdict()
