"""Trajectories of the react trace at once against one after another: `python -m benchmarks.batching --help`.

Token ids are random, so the adapters say nothing sensible; what counts is the time, and only ratios are to be quoted.
In every round each scheme has its turn, and the first scheme another one with its trajectories one after another.
"""

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch

from agentrt.builtin import agents_dir
from agentrt.config.team import Team
from agentrt.config.trace import TraceConfig
from agentrt.engine import Engine, EngineConfig
from agentrt.evaluate.replay.trace import Trace, build_trace, random_contexts
from agentrt.evaluate.serving.arrivals import arrival_times
from agentrt.evaluate.serving.load import serve
from agentrt.model.backbone import Backbone
from agentrt.schemes.make import make_scheme
from agentrt.step import Step
from benchmarks.machine import describe

SCHEMES = "pre_lr_shared rebase_shared:db rebase_shared:auto,adapted_tail=16"


class Clocked(NamedTuple):
    """One step: its wall time, the rows that decode (passes of one row with logits), and all others."""

    seconds: float
    decode_rows: int
    other_rows: int


class Played(NamedTuple):
    """Some trajectories under one scheme."""

    seconds: float
    steps: Sequence[Clocked]

    def profile(self) -> dict[str, object]:
        """Where the time went: steps that only decode, steps with other rows in them, and between steps."""
        decode = [step for step in self.steps if not step.other_rows]
        mixed = [step for step in self.steps if step.other_rows]
        parts = {"decode_steps": decode, "other_steps": mixed}
        found: dict[str, object] = {
            name: {
                "steps": len(steps),
                "seconds": round(sum(step.seconds for step in steps), 2),
                "decode_rows": sum(step.decode_rows for step in steps),
                "other_rows": sum(step.other_rows for step in steps),
            }
            for name, steps in parts.items()
        }
        return {**found, "between_steps_s": round(self.seconds - sum(step.seconds for step in self.steps), 2)}


@contextmanager
def clocked(backbone: Backbone) -> Iterator[list[Clocked]]:
    """The steps that the backbone runs meanwhile."""
    steps: list[Clocked] = []
    run = backbone.run

    def timed(step: Step, *others: Any) -> list[torch.Tensor | None]:
        start = time.perf_counter()
        logits = run(step, *others)
        decode = sum(len(each) for each in step.passes if len(each) == 1 and each.logits != "none")
        rows = sum(len(each) for each in step.passes)
        steps.append(Clocked(time.perf_counter() - start, decode, rows - decode))
        return logits

    backbone.run = timed
    try:
        yield steps
    finally:
        del backbone.run


def play(engine: Engine, trace: Trace, sessions: int, *, at_once: bool) -> Played:
    contexts = [random_contexts(trace, engine.backbone.vocab_size, seed) for seed in range(sessions)]
    times = arrival_times("trajectories", None, sessions, len(trace.calls), 0)
    with clocked(engine.backbone) as steps:
        start = time.perf_counter()
        if at_once:
            serve(engine, trace, contexts, times)
        else:
            for each, due in zip(contexts, times, strict=True):
                serve(engine, trace, [each], [due])
        return Played(time.perf_counter() - start, steps)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--context", type=int, default=256)
    parser.add_argument("--calls", type=int, help="only so many calls of the trace")
    parser.add_argument("--sessions", type=int, default=8)
    parser.add_argument("--schemes", default=SCHEMES, help="separated by spaces; ratios are to the first")
    parser.add_argument("--repeats", type=int, default=1, help="rounds; medians are given")
    parser.add_argument("--out", type=Path, help="write the JSON here too")
    options = parser.parse_args()
    trace = build_trace(TraceConfig.load("react"), "react", options.context, ("plan", "action", "reflect"))
    trace = replace(trace, calls=trace.calls[: options.calls])
    backbone = Backbone.load(options.model)
    adapters = backbone.load_adapters(Team.load(agents_dir() / "search" / "team.yaml").adapters())
    limits = EngineConfig(max_context=trace.num_tokens + 2)
    names = options.schemes.split()
    with ExitStack() as stack:
        engines = {
            name: stack.enter_context(Engine(backbone, adapters, make_scheme(name), config=limits)) for name in names
        }
        for engine in engines.values():  # warm-up
            play(engine, replace(trace, calls=trace.calls[:3]), 2, at_once=True)
        apart, together = [], {name: [] for name in names}
        for _ in range(options.repeats):
            apart.append(play(engines[names[0]], trace, options.sessions, at_once=False))
            for name, engine in engines.items():
                together[name].append(play(engine, trace, options.sessions, at_once=True))
    rows = [row_of(f"{names[0]}, one after another", apart, together[names[0]])]
    rows += [row_of(f"{name}, at once", played, together[names[0]]) for name, played in together.items()]
    for row in rows:
        print(json.dumps(row), flush=True)
    ratio = median(a.seconds / b.seconds for a, b in zip(together[names[0]], apart, strict=True))
    print(json.dumps({"at_once_vs_one_after_another": round(ratio, 3)}))
    told = {key: getattr(options, key) for key in ("model", "context", "sessions", "repeats")}
    result = {"benchmark": "batching", **told, "calls": len(trace.calls), **describe()}
    if options.out:
        result = {**result, "at_once_vs_one_after_another": round(ratio, 3), "rows": rows}
        options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def row_of(name: str, played: Sequence[Played], first: Sequence[Played]) -> dict[str, object]:
    """Medians over the rounds; the profile is of the last one."""
    ratios = [each.seconds / other.seconds for each, other in zip(played, first, strict=True)]
    return {
        "load": name,
        "seconds": round(median(each.seconds for each in played), 2),
        "vs_first_at_once": round(median(ratios), 3),
        "profile": played[-1].profile(),
    }


if __name__ == "__main__":
    main()
