"""The preamble benchmark measures what it says: the second session runs the preamble's rows no more."""

import copy

import pytest

from agentrt.engine import Engine, EngineConfig
from agentrt.model.backbone import Backbone
from agentrt.schemes.make import make_scheme
from benchmarks.preamble import measure
from tests.models import make


@pytest.mark.parametrize("scheme", ["non_shared", "pre_lr_shared", "rebase_shared:lp", "neutral_prefix:question"])
def test_the_second_session_runs_only_what_is_new(scheme: str) -> None:
    model, folders = make("llama")
    backbone = Backbone(copy.deepcopy(model))
    limits = EngineConfig(ride_rows=0)
    with Engine(backbone, backbone.load_adapters(folders), make_scheme(scheme), config=limits) as engine:
        pairs = measure(engine, "plan", preamble=60, context=7, repeats=2)
    assert len(pairs) == 2
    for first, second in pairs:
        assert first.rows == second.rows + 60
        assert (first.reused, second.reused) == (0, 60)
        assert min(first.ttft_s, second.ttft_s) > 0
