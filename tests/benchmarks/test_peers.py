"""The transformers + peft peer does the work of `non_shared`: same rows, same bytes, and in fp32 the same tokens."""

from pathlib import Path

from agentrt.config.trace import TraceConfig
from agentrt.evaluate.replay.adapters import RandomAdapters
from agentrt.evaluate.replay.contestant import EngineContestant, play
from agentrt.evaluate.replay.trace import build_trace, random_contexts
from agentrt.model.backbone import Backbone
from agentrt.model.tiny import tiny_model
from agentrt.schemes.make import make_scheme
from benchmarks.peers.transformers_peft import PeftContestant


def test_the_peer_equals_non_shared(tmp_path: Path) -> None:
    config = TraceConfig.load("react")
    trace = build_trace(config, "react", 21, config.agents).prefix(17, 30, 4)
    backbone = Backbone(tiny_model(layers=2))
    spec = RandomAdapters.parse("r=4")
    folders = spec.write(config.agents, backbone.shapes, tmp_path, base_name=backbone.names[0])
    peer = PeftContestant(tiny_model(layers=2), folders, backbone.compute)
    scheme, adapters = make_scheme("non_shared"), backbone.load_adapters(folders)
    ours = EngineContestant("non_shared", scheme, backbone, adapters, max_tokens=trace.num_tokens)
    contexts = random_contexts(trace, backbone.vocab_size, 5)
    try:
        ran, theirs = play(ours, trace, contexts), play(peer, trace, contexts)
    finally:
        ours.close()
    assert ours.token_ids == peer.token_ids
    assert ran[4:] == theirs[4:], "bytes and rows"
    assert 0 < theirs.ttft_s < theirs.total_s
