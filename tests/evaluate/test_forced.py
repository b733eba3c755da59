"""Forcing a trajectory through a scheme gives what the engine gives when it generates the same tokens one by one."""

import copy
import random
from pathlib import Path

import pytest
import torch

from agentrt.engine import Engine, EngineConfig
from agentrt.errors import DataError, UsageError
from agentrt.evaluate.forced import Call, Sample, check_samples, force
from agentrt.model.adapters import AdapterSet
from agentrt.model.backbone import Backbone
from agentrt.model.sampling import Sampling
from agentrt.model.tiny import tiny_adapter
from agentrt.schemes.make import make_scheme
from tests.models import make, random_turns

SCHEMES = [
    "non_shared",
    "full_shared",
    "base_shared",
    "pre_lr_shared",
    "rebase_shared",
    "rebase_shared:db",
    "rebase_shared:fused",
    "rebase_shared:lp,lp_at=handover",
    "rebase_shared:adapted_tail=2",
    "rebase_shared:pivot=plan",
    "neutral_prefix:early",
    "neutral_prefix:full",
    "droidspeak:layers=1-2",
    "droidspeak_scattered:layers=0+2",
    "cacheblend:ratio=0.4",
    "relay_caching:layers=1-2",
]


class Follow:
    def __init__(self, token_ids: tuple[int, ...]) -> None:
        self.token_ids = token_ids

    def allowed(self, generated: list[int]) -> tuple[int, ...]:
        return self.token_ids[len(generated) : len(generated) + 1]


def make_sample(seed: int = 3, preamble: int = 9, count: int = 7) -> Sample:
    rng = random.Random(seed)
    calls = tuple(Call(agent, tuple(context), tuple(forced)) for agent, context, forced in random_turns(seed, count))
    return Sample(f"s{seed}", tuple(rng.randrange(211) for _ in range(preamble)), calls)


@pytest.fixture(scope="module")
def tiny() -> tuple[Backbone, AdapterSet]:
    model, folders = make("llama")
    backbone = Backbone(copy.deepcopy(model))
    return backbone, backbone.load_adapters(folders)


@pytest.mark.parametrize("name", SCHEMES)
def test_the_engine_gives_the_same_log_probabilities(name: str, tiny: tuple[Backbone, AdapterSet]) -> None:
    backbone, adapters = tiny
    sample = make_sample()
    found = force(make_scheme(name), backbone, adapters, sample)
    told: list[float] = []
    config = EngineConfig(segment_slots=32, ride_rows=2)
    with Engine(backbone, adapters, make_scheme(name), config=config) as engine:
        session = engine.session(sample.preamble)
        for call in sample.calls:
            follow = Follow(call.generated)
            sampling = Sampling(max_new_tokens=len(call.generated), constraint=follow)  # type: ignore[arg-type]
            result = session.turn(call.agent, call.context, sampling).result
            assert result.token_ids == call.generated
            told += result.logprobs
        session.settle()
        stats = engine.stats()
    ids = torch.tensor([token for call in sample.calls for token in call.generated])
    logprobs = found.logits.log_softmax(-1)[torch.arange(len(ids)), ids]
    torch.testing.assert_close(logprobs, torch.tensor(told), rtol=1e-4, atol=1e-4)
    rows = stats.prefill_rows + stats.decode_rows + stats.neutral_rows
    assert found.rows == round(rows + stats.repaired_layer_rows / backbone.num_layers)
    assert found.kv_bytes_peak > 0


def test_a_sample_knows_who_processes_what(tiny: tuple[Backbone, AdapterSet]) -> None:
    sample = Sample("s", (1, 2), (Call("plan", (3, 4), (5,)), Call("action", (), (6, 7))))
    assert sample.token_ids == (1, 2, 3, 4, 5, 6, 7)
    assert [tuple(each) for each in sample.readings] == [("plan", 0, 4), ("action", 4, 6)]
    assert sample.authors == ["plan", "action", "action"]


def test_samples_that_cannot_be_run_are_refused_by_name(tiny: tuple[Backbone, AdapterSet]) -> None:
    backbone, adapters = tiny
    with pytest.raises(UsageError, match="no sample"):
        check_samples([], adapters, backbone)
    for sample, message in (
        (Sample("a", (), (Call("critic", (1,), (2,)),)), "no adapter for critic; adapters: plan, action, reflect"),
        (Sample("n", (), (Call("", (1,), (2,)),)), "a role without an adapter .* name one for every role"),
        (Sample("b", (), (Call("plan", (1,), ()),)), "generates nothing"),
        (Sample("c", (), (Call("plan", (), (1, 2)),)), "nothing to read"),
        (Sample("d", (), (Call("plan", (1,), (9999,)),)), "another tokenizer"),
        (Sample("e", (1,) * 9999, (Call("plan", (1,), (2,)),)), "exceed"),
    ):
        with pytest.raises(DataError, match=message):
            check_samples([sample], adapters, backbone)


def test_an_adapter_that_does_nothing_leaves_the_model_alone(tmp_path: Path) -> None:
    model, _ = make("llama")
    backbone = Backbone(copy.deepcopy(model))
    folders = {name: tiny_adapter(model, tmp_path / f"zero-{name}", zero_b=True) for name in ("plan", "action")}
    adapters = backbone.load_adapters(folders)
    sample = Sample("s", (5, 6), (Call("plan", (7, 8, 9), (10, 11)), Call("action", (12,), (13, 14))))
    found = force(make_scheme("pre_lr_shared"), backbone, adapters, sample)
    with torch.no_grad():
        whole = copy.deepcopy(model)(torch.tensor([sample.token_ids])).logits[0]
    torch.testing.assert_close(found.logits, whole[[4, 5, 7, 8]], rtol=1e-4, atol=1e-4)
