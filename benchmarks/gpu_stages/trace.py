"""(d) The react trace through the engine: the main schemes, longest contexts first, then all others, shortest first."""

import random
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from agentrt.config.trace import TraceConfig
from agentrt.errors import SchemeError
from agentrt.evaluate.replay.contestant import EngineContestant, play
from agentrt.evaluate.replay.entrants import all_schemes
from agentrt.evaluate.replay.trace import Trace, build_trace, random_contexts
from agentrt.evaluate.ridge import fit_ridge, write_ridge
from agentrt.model.adapters import AdapterSet
from agentrt.schemes import Scheme
from agentrt.schemes.make import make_scheme
from benchmarks.gpu_stages.llama import AGENTS
from benchmarks.gpu_stages.setup import Report, Setup

FIRST = ("non_shared", "full_shared", "pre_lr_shared", "rebase_shared:lp", "rebase_shared:db")
SHARED_A = "base_lr_shared"
MARGIN = 1.2
"""On a scheme's time for a token, of a longer context or, where there is none, of the fastest other scheme."""


def run(setup: Setup, report: Report) -> None:
    config = TraceConfig.load("react")
    traces = {context: build_trace(config, "react", context, AGENTS) for context in setup.contexts}
    if setup.smoke:
        traces = {context: trace.prefix(3, context, 1) for context, trace in traces.items()}
    others = [name for name in all_schemes(traces[setup.contexts[0]].calls) if name not in FIRST]
    paces: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        for schemes, contexts in ((FIRST, setup.contexts), (others, setup.contexts[::-1])):
            for context in contexts:
                for scheme in schemes:
                    add_run(setup, report, scheme, traces[context], paces, Path(folder))


def add_run(setup: Setup, report: Report, scheme: str, trace: Trace, paces: dict[str, float], folder: Path) -> None:
    """Measure one scheme on one trace if there seems to be time for it; `paces`: seconds a token by scheme."""
    llama, name = setup.llama, f"C={trace.context} {scheme}"
    made = make_scheme(scheme)
    adapters = llama.adapters_with_one_a if made.name == SHARED_A else llama.adapters
    try:
        made.allow_kinds(adapters.names, adapters.invocations)
    except SchemeError as error:
        report.result["left_out"][f"trace: {scheme}"] = str(error)
        return
    pace = paces.get(scheme, min(paces.values(), default=0.0))
    report.add(
        "trace",
        name,
        lambda: _play(setup, report, made, adapters, trace, folder),
        needs_s=max(setup.least_s, MARGIN * pace * trace.num_tokens),
    )
    played = report.result.get("trace", {}).get(name, {})
    if "throughput_tok_s" in played:
        paces[scheme] = 1 / played["throughput_tok_s"]


def _play(
    setup: Setup, report: Report, scheme: Scheme, adapters: AdapterSet, trace: Trace, folder: Path
) -> dict[str, Any]:
    backbone = setup.llama.backbone
    if scheme.maps_file is not None:
        scheme = scheme.with_maps_file(str(_fit_maps(setup, adapters, folder)))
    ride_rows = 4 if setup.smoke else None
    contestant = EngineContestant("", scheme, backbone, adapters, max_tokens=trace.num_tokens, ride_rows=ride_rows)
    done = {"calls": len(trace.calls), "calls_done": 0, "num_tokens": trace.num_tokens}
    try:
        with report.bounded(contestant.engine, done):
            if not setup.smoke:  # kernels are compiled and library handles made on a short trace
                short = trace.prefix(4, 64, 4)
                play(contestant, short, random_contexts(short, backbone.vocab_size, 1))
            if setup.device.type == "cuda":
                torch.cuda.reset_peak_memory_stats()
            began = time.perf_counter()
            begun = contestant.begin(trace, random_contexts(trace, backbone.vocab_size, 0), 0.0)
            for index in range(len(trace.calls)):
                begun.call(index)
                done |= {"calls_done": index + 1, "calls_done_s": time.perf_counter() - began}
            run = begun.end()
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


def _fit_maps(setup: Setup, adapters: AdapterSet, folder: Path) -> Path:
    """Ridge maps for these adapters, fitted once, on random tokens as the trace's are."""
    file = folder / "maps.safetensors"
    if not file.exists():
        backbone, rng = setup.llama.backbone, random.Random(0)
        context = [rng.randrange(backbone.vocab_size) for _ in range(16 if setup.smoke else 256)]
        write_ridge(file, fit_ridge(backbone, adapters, [context]), backbone, adapters)
    return file
