"""The batching benchmark's own books, on a tiny model."""

from dataclasses import replace

import pytest

from agentrt.config.trace import TraceConfig
from agentrt.engine import Engine, EngineConfig
from agentrt.evaluate.replay.trace import build_trace
from agentrt.model.backbone import Backbone
from agentrt.schemes.make import make_scheme
from benchmarks.batching import play
from tests.models import AGENTS, make


@pytest.mark.parametrize("at_once", [True, False])
def test_the_profile_has_every_step_and_row_in_it(at_once):
    model, folders = make()
    backbone = Backbone(model)
    run = backbone.run
    whole = build_trace(TraceConfig.load("react"), "react", 5, AGENTS)
    limits = EngineConfig(max_context=whole.num_tokens)
    with Engine(backbone, backbone.load_adapters(folders), make_scheme("rebase_shared:db"), config=limits) as engine:
        played = play(engine, replace(whole, calls=whole.calls[:3]), 2, at_once=at_once)
        stats = engine.stats()
    profile = played.profile()
    parts = [profile["decode_steps"], profile["other_steps"]]
    assert sum(part["steps"] for part in parts) == stats.steps == len(played.steps)
    rows = sum(part["decode_rows"] + part["other_rows"] for part in parts)
    assert rows == stats.prefill_rows + stats.decode_rows + stats.neutral_rows
    assert 0 < sum(part["seconds"] for part in parts) + profile["between_steps_s"] <= played.seconds + 0.05
    assert backbone.run == run
