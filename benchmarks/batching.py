"""Trajectories of the react trace at once against one after another: `python -m benchmarks.batching --help`.

Token ids are random, so the adapters say nothing sensible; what counts is the time, and only ratios are to be quoted.
"""

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path

from agentrt.builtin import agents_dir
from agentrt.config.team import Team
from agentrt.config.trace import TraceConfig
from agentrt.engine import Engine, EngineConfig
from agentrt.evaluate.replay.trace import Trace, build_trace, random_contexts
from agentrt.evaluate.serving.arrivals import arrival_times
from agentrt.evaluate.serving.load import serve
from agentrt.model.backbone import Backbone
from agentrt.schemes.make import make_scheme
from benchmarks.machine import describe

SCHEMES = "pre_lr_shared rebase_shared:db rebase_shared:auto,adapted_tail=16"


def seconds(engine: Engine, trace: Trace, sessions: int, *, at_once: bool) -> float:
    """Wall time of `sessions` trajectories."""
    contexts = [random_contexts(trace, engine.backbone.vocab_size, seed) for seed in range(sessions)]
    times = arrival_times("trajectories", None, sessions, len(trace.calls), 0)
    start = time.perf_counter()
    if at_once:
        serve(engine, trace, contexts, times)
    else:
        for each, due in zip(contexts, times, strict=True):
            serve(engine, trace, [each], [due])
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--context", type=int, default=256)
    parser.add_argument("--calls", type=int, help="only so many calls of the trace")
    parser.add_argument("--sessions", type=int, default=8)
    parser.add_argument("--schemes", default=SCHEMES, help="separated by spaces; ratios are to the first")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--out", type=Path, help="write the JSON here too")
    options = parser.parse_args()
    trace = build_trace(TraceConfig.load("react"), "react", options.context, ("plan", "action", "reflect"))
    trace = replace(trace, calls=trace.calls[: options.calls])
    backbone = Backbone.load(options.model)
    adapters = backbone.load_adapters(Team.load(agents_dir() / "search" / "team.yaml").adapters())
    limits = EngineConfig(max_context=trace.num_tokens + 2)
    rows: list[dict[str, object]] = []
    first = 0.0
    for name in options.schemes.split():
        with Engine(backbone, adapters, make_scheme(name), config=limits) as engine:
            seconds(engine, replace(trace, calls=trace.calls[:3]), 2, at_once=True)  # warm-up
            apart = min(seconds(engine, trace, options.sessions, at_once=False) for _ in range(options.repeats))
            together = min(seconds(engine, trace, options.sessions, at_once=True) for _ in range(options.repeats))
        first = first or together
        rows.append(
            {
                "scheme": name,
                "one_after_another_s": round(apart, 2),
                "at_once_s": round(together, 2),
                "ratio": round(together / apart, 3),
                "vs_first": round(together / first, 3),
            }
        )
        print(json.dumps(rows[-1]), flush=True)
    told = {key: getattr(options, key) for key in ("model", "context", "sessions", "repeats")}
    result = {"benchmark": "batching", **told, "calls": len(trace.calls), **describe(), "rows": rows}
    if options.out:
        options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
