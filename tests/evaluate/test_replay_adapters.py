"""The random adapters of replays: their specification, what is written, and who they are."""

from pathlib import Path

import pytest
import torch
from peft import PeftModel

from agentrt.config.trace import TraceConfig
from agentrt.errors import SchemeError, UsageError
from agentrt.evaluate.replay.adapters import RandomAdapters
from agentrt.evaluate.replay.entrants import LeftOut
from agentrt.evaluate.replay.job import run_replay
from agentrt.evaluate.replay.plan import ReplayPlan, variants
from agentrt.model.backbone import Backbone
from agentrt.model.tiny import tiny_adapter, tiny_model


def test_random_adapters_are_what_peft_would_load(tmp_path: Path) -> None:
    model = tiny_model(layers=2)
    shapes = Backbone(tiny_model(layers=2)).shapes
    spec = RandomAdapters.parse("r=3,targets=qvd,alpha=12")
    folders = spec.write(("a", "b"), shapes, tmp_path, base_name=model.name_or_path, shared_a=True)
    peft = PeftModel.from_pretrained(model, str(folders["a"]), "a", autocast_adapter_dtype=False)
    peft.load_adapter(str(folders["b"]), "b", autocast_adapter_dtype=False)
    layer = peft.base_model.model.model.layers[1]
    assert layer.self_attn.v_proj.scaling == {"a": 4.0, "b": 4.0}
    assert layer.mlp.down_proj.lora_A["a"].weight.shape == (3, 91)
    for projection in (layer.self_attn.q_proj, layer.self_attn.v_proj, layer.mlp.down_proj):
        assert torch.equal(projection.lora_A["a"].weight, projection.lora_A["b"].weight)
        assert not torch.equal(projection.lora_B["a"].weight, projection.lora_B["b"].weight)
        assert projection.lora_B["a"].weight.abs().max() > 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("r=0", "whole number"),
        ("targets=qx", "letters are"),
        ("target=q", "did you mean 'targets'"),
        ("n=2", "has 3 agents"),
    ],
)
def test_a_bad_adapter_spec_is_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        RandomAdapters.parse(text).names(("plan", "action", "reflect"))


def test_further_adapters_only_hold_columns() -> None:
    assert RandomAdapters.parse("n=4").names(("plan", "action")) == ["plan", "action", "idle1", "idle2"]
    plan = ReplayPlan(TraceConfig.load("rank"), "rank", random=RandomAdapters.parse("targets=v"))
    assert [str(each.random) for each in variants(plan)] == [f"r={r},targets=v,alpha=16" for r in (8, 16, 32, 64)]


def test_activated_adapters_are_refused_because_random_tokens_never_invoke_them(tmp_path: Path) -> None:
    model = tiny_model(layers=2)
    config = TraceConfig.load("react")
    folders = {
        agent: tiny_adapter(model, tmp_path / agent, seed=seed, alora_invocation_tokens=[7, 8])
        for seed, agent in enumerate(config.agents)
    }
    backbone = Backbone(model)
    with pytest.raises(SchemeError, match="random tokens hold none; measure them with `agentrt eval`"):
        next(iter(run_replay(backbone, ReplayPlan(config, "react", schemes="alora", adapters=folders))))
    with pytest.raises(UsageError, match=r"--schemes core: no scheme can replay these adapters; .*activated"):
        next(iter(run_replay(backbone, ReplayPlan(config, "react", schemes="core", adapters=folders))))


def test_a_named_scheme_that_the_adapters_do_not_allow_is_an_error() -> None:
    backbone = Backbone(tiny_model(layers=2))
    config = TraceConfig.load("react")
    random = RandomAdapters.parse("targets=qkv,r=2")
    named = ReplayPlan(config, "react", schemes="non_shared,alora", random=random)
    with pytest.raises(SchemeError, match="no activated LoRA"):
        next(iter(run_replay(backbone, named)))


@pytest.mark.slow
def test_with_all_schemes_those_that_the_adapters_do_not_allow_are_left_out_and_ridge_is_fitted() -> None:
    backbone = Backbone(tiny_model(layers=2))
    random = RandomAdapters.parse("targets=qkv,r=2")
    plan = ReplayPlan(TraceConfig.load("react"), "react", schemes="all", contexts=(4,), random=random, repeats=1)
    found = run_replay(backbone, plan)
    first = next(found)
    assert isinstance(first, LeftOut)
    assert first.to_record().items() >= {"event": "left_out", "scheme": "alora", "variant": None}.items()
    assert "no activated LoRA" in first.reason
    outcomes = {finding.outcome.measured.label: finding for finding in next(found)}
    ridge = outcomes["ridge"]
    assert ridge.outcome.ratios is not None, ridge.outcome.refused
    maps = ridge.declared["options"]["maps"]
    assert maps.startswith("fitted-on-256-random-tokens")
    assert Path(maps).name == maps
