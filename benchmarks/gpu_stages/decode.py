"""(e) Decode through the engine, seconds a token, against the time the device takes to read what a token reads."""

import random
from typing import Any

from agentrt.engine import Engine, EngineConfig
from agentrt.model.sampling import Sampling
from agentrt.schemes.make import make_scheme
from benchmarks.gpu_stages.rates import copy_rate
from benchmarks.gpu_stages.setup import Report, Setup


def run(setup: Setup, report: Report) -> None:
    for length in setup.lengths:
        report.add("decode", f"pre_lr_shared {length}", lambda n=length: _measure(setup, n), needs_s=40)


def _measure(setup: Setup, length: int) -> dict[str, Any]:
    """One session: a context of `length` tokens, then tokens one by one."""
    tokens = 3 if setup.smoke else 64
    llama = setup.llama
    rng = random.Random(0)
    context = [rng.randrange(llama.backbone.vocab_size) for _ in range(length)]
    config = EngineConfig(max_context=length + tokens + 8, segment_slots=length + tokens + 8, ride_rows=0)
    with Engine(llama.backbone, llama.adapters, make_scheme("pre_lr_shared"), config=config) as engine:
        session = engine.session()
        usage = session.turn("plan", context, Sampling(max_new_tokens=tokens + 1)).result.usage
        kv_bytes = engine.stats().held_bytes
    gb_per_s = copy_rate(setup)["gb_per_s"]
    floor_s = (llama.weight_bytes + kv_bytes) / gb_per_s / 1e9
    token_s = 1 / usage.decode_tokens_per_s
    return {
        "token_s": token_s,
        "floor_s": floor_s,
        "times_the_floor": token_s / floor_s,
        "weight_bytes": llama.weight_bytes,
        "kv_bytes": kv_bytes,
        "copy_gb_per_s": gb_per_s,
        "ttft_s": usage.ttft_s,
    }
