"""(e) Decode through the engine, seconds a token, against the time the device takes to read what a token reads."""

import random
from functools import partial
from typing import Any, NamedTuple

from agentrt.engine import Engine, EngineConfig
from agentrt.model.recorder import CudaGraphs
from agentrt.model.sampling import Sampling
from agentrt.schemes.make import make_scheme
from benchmarks.gpu_stages.rates import copy_rate
from benchmarks.gpu_stages.setup import Report, Setup


def run(setup: Setup, report: Report) -> None:
    cases = [*(("pre_lr_shared", length) for length in setup.lengths), ("rebase_shared:lp", setup.lengths[0])]
    for scheme, length in cases:
        case = Case(setup, report, scheme, length)
        report.add("decode", f"{scheme} {length}", partial(_compare, case), needs_s=setup.least_s)


class Case(NamedTuple):
    setup: Setup
    report: Report
    scheme: str
    length: int


def _compare(case: Case) -> dict[str, Any]:
    """Steps launched kernel by kernel, and steps replayed as CUDA graphs, which must write the same tokens."""
    plain, plain_ids = _measure(case, "off", {})
    replayed, replayed_ids = _measure(case, "auto", plain)
    same = plain_ids == replayed_ids
    return {**plain, "cuda_graphs": {**replayed, "same_tokens": same, "faster": plain["token_s"] / replayed["token_s"]}}


def _measure(case: Case, graphs: CudaGraphs, before: dict[str, Any]) -> tuple[dict[str, Any], list[int]]:
    """One session: a context of `length` tokens and a first turn, which compiles and records; then one that counts.

    `before`: what is known if time ends here.
    """
    setup, report, scheme, length = case
    tokens = 2 if setup.smoke else 64
    llama = setup.llama
    rng = random.Random(0)
    context = [rng.randrange(llama.backbone.vocab_size) for _ in range(length)]
    limit = length + 2 * tokens + 8
    config = EngineConfig(max_context=limit, segment_slots=limit, ride_rows=0, cuda_graphs=graphs)
    with (
        Engine(llama.backbone, llama.adapters, make_scheme(scheme), config=config) as engine,
        report.bounded(engine, before),
    ):
        session = engine.session()
        first = session.turn("plan", context, Sampling(max_new_tokens=tokens + 1)).result
        second = session.turn("plan", context[:1], Sampling(max_new_tokens=tokens + 1)).result
        stats = engine.stats()
    gb_per_s = copy_rate(setup)["gb_per_s"]
    floor_s = (llama.weight_bytes + stats.held_bytes) / gb_per_s / 1e9
    token_s = 1 / second.usage.decode_tokens_per_s
    found: dict[str, Any] = {
        "token_s": token_s,
        "floor_s": floor_s,
        "times_the_floor": token_s / floor_s,
        "weight_bytes": llama.weight_bytes,
        "kv_bytes": stats.held_bytes,
        "copy_gb_per_s": gb_per_s,
        "ttft_s": first.usage.ttft_s,
    }
    if stats.graphs is not None:
        use = stats.graphs
        found |= {"recorded": use.recorded, "replayed": use.replayed, "unavailable": use.unavailable}
    return found, [*first.token_ids, *second.token_ids]
