"""(d) The react trace through the engine, the longest contexts and the main schemes first."""

from typing import Any

import torch

from agentrt.config.trace import TraceConfig
from agentrt.evaluate.replay.contestant import EngineContestant, Run, play
from agentrt.evaluate.replay.trace import Trace, build_trace, random_contexts
from agentrt.schemes import SCHEMES
from agentrt.schemes.make import make_scheme
from benchmarks.gpu_stages.llama import AGENTS
from benchmarks.gpu_stages.setup import Report, Setup

FIRST = ("non_shared", "full_shared", "pre_lr_shared", "rebase_shared:lp", "rebase_shared:db")
SHARED_A = "base_lr_shared"
NEED_MORE = ("alora", "ridge")
"""Run on adapters of another kind, or on fitted maps."""


def run(setup: Setup, report: Report) -> None:
    config = TraceConfig.load("react")
    done = {each.partition(":")[0] for each in FIRST}
    others = [name for name in SCHEMES if name not in done and name not in NEED_MORE]
    schemes = [*FIRST, *others, "rebase_shared:auto"]
    last_s = 0.0
    for context in setup.contexts:
        trace = build_trace(config, "react", context, AGENTS)
        if setup.smoke:
            trace = trace.prefix(3, context, 1)
        for scheme in schemes:
            report.add(
                "trace",
                f"C={context} {scheme}",
                lambda scheme=scheme, trace=trace: _play(setup, scheme, trace),
                needs_s=max(20.0, 1.2 * last_s),
            )
            played = report.result.get("trace", {}).get(f"C={context} {scheme}", {})
            last_s = played.get("total_s", last_s)


def _play(setup: Setup, scheme: str, trace: Trace) -> dict[str, Any]:
    llama = setup.llama
    adapters = llama.adapters_with_one_a if scheme == SHARED_A else llama.adapters
    vocabulary = llama.backbone.vocab_size
    made = make_scheme(scheme)
    contestant = EngineContestant(
        scheme, made, llama.backbone, adapters, max_tokens=trace.num_tokens, ride_rows=4 if setup.smoke else None
    )
    try:
        if not setup.smoke:  # kernels are compiled and library handles made on a short trace
            short = trace.prefix(4, 64, 4)
            play(contestant, short, random_contexts(short, vocabulary, 1))
        if setup.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
        run: Run = play(contestant, trace, random_contexts(trace, vocabulary, 0))
    finally:
        contestant.close()
        if setup.device.type == "cuda":
            torch.cuda.empty_cache()
    peak = torch.cuda.max_memory_allocated() if setup.device.type == "cuda" else None
    return {
        **run._asdict(),
        "num_tokens": trace.num_tokens,
        "throughput_tok_s": trace.num_tokens / run.total_s,
        "device_bytes_peak": peak,
    }
