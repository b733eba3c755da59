"""A controlled trace under our schemes and under transformers + peft, in one process, turn about.

`python -m benchmarks.peers --context 256,1024`. Same tokens drawn, same adapters; only ratios are to be quoted.
"""

import argparse
import json
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import torch

from agentrt.config.team import Team
from agentrt.config.trace import TraceConfig
from agentrt.evaluate.replay.adapters import RandomAdapters
from agentrt.evaluate.replay.check import Checker
from agentrt.evaluate.replay.contestant import EngineContestant
from agentrt.evaluate.replay.entrants import parse_schemes
from agentrt.evaluate.replay.measure import Measured, measure
from agentrt.evaluate.replay.trace import build_trace
from agentrt.model.backbone import Backbone
from agentrt.model.load import load_model
from agentrt.model.progress import progress_bar
from agentrt.schemes.make import make_scheme
from benchmarks.machine import describe
from benchmarks.peers.transformers_peft import LABEL, PeftContestant


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trace", default="react")
    parser.add_argument("--context", default="256,1024")
    parser.add_argument("--schemes", default="non_shared", help="ours to run beside the peer, as in agentrt replay")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--team", default="search", help="whose adapters, backbone and dtype")
    parser.add_argument("--model", help="another backbone (alias, hub id or folder)")
    parser.add_argument("--random-adapters", metavar="r=8,targets=qv,alpha=16", help="instead of the team's")
    parser.add_argument("--dtype", help="auto, float32, bfloat16; default: the team's")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--autocast", action="store_true", help="the peer keeps its adapters in fp32, peft's default")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="write the JSON here too")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    rows = list(run(options))
    if options.out:
        facts = {"benchmark": "peers", "peer": LABEL, "autocast": options.autocast, **describe()}
        options.out.write_text(json.dumps({**facts, "rows": rows}, indent=1) + "\n", encoding="utf-8")


def run(options: argparse.Namespace) -> list[dict[str, object]]:
    config = TraceConfig.load(options.trace)
    team = Team.load(options.team, need_adapters=options.random_adapters is None)
    name, dtype = options.model or team.base.model, options.dtype or team.base.dtype
    agents = config.agents or tuple(f"agent{i + 1}" for i in range(config.crews[0]))
    load = {"dtype": dtype, "device": options.device}
    backbone = Backbone.load(name, **load)
    peer = backbone.compute.call(load_model, name, **load).model
    rows: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as place, progress_bar() as bar:
        folders = {agent: path for agent, path in team.adapters().items() if agent in agents}
        if options.random_adapters is not None:
            random = RandomAdapters.parse(options.random_adapters)
            folders = random.write(agents, backbone.shapes, Path(place), base_name=backbone.names[0], seed=options.seed)
        adapters = backbone.load_adapters(folders)
        stock = PeftContestant(peer, folders, backbone.compute, autocast=options.autocast)
        for context in map(int, options.context.split(",")):
            trace = build_trace(config, options.trace, context, agents)
            labels = parse_schemes(options.schemes, trace.calls)
            checker = Checker(backbone, adapters, trace, seed=options.seed)
            wrong = {label: check.reason for label in labels if not (check := checker.check(make_scheme(label))).ok}
            with ExitStack() as stack:
                contestants = [
                    EngineContestant(label, make_scheme(label), backbone, adapters, max_tokens=trace.num_tokens)
                    for label in labels
                ]
                for contestant in contestants:
                    stack.callback(contestant.close)
                measured = measure(
                    [(each, trace) for each in (stock, *contestants)],
                    vocab_size=backbone.vocab_size,
                    repeats=options.repeats,
                    seed=options.seed,
                    stage=f"{options.trace}, C = {context}",
                    report=bar,
                )
                same = {c.label: agreement(c.token_ids, stock.token_ids) for c in contestants}
            rows += report(measured, same, wrong)
    return rows


def report(measured: Sequence[Measured], same: dict[str, float], wrong: dict[str, str]) -> list[dict[str, object]]:
    """One line for each contestant; no ratio for a scheme that failed its check."""
    peer, rows = measured[0], []
    for each in measured:
        middle = each.middle
        trusted = each.label not in wrong
        rows.append(
            {
                "contestant": each.label,
                "context": each.trace.context,
                "trajectory_tokens": each.trace.num_tokens,
                **{
                    key: round(value, 4) if isinstance(value, float) else value
                    for key, value in middle._asdict().items()
                },
                "ttft_vs_peer": round(middle.ttft_s / peer.middle.ttft_s, 3) if trusted else None,
                "decode_vs_peer": round(middle.decode_s / peer.middle.decode_s, 3) if trusted else None,
                "total_vs_peer": round(middle.total_s / peer.middle.total_s, 3) if trusted else None,
                "same_tokens": same.get(each.label),
                "refused": wrong.get(each.label),
                "totals_s": [round(run.total_s, 3) for run in each.runs],
            }
        )
        print(json.dumps(rows[-1]), flush=True)
    return rows


def agreement(ours: Sequence[int], theirs: Sequence[int]) -> float:
    """Share of the trajectory's positions with the same token; in fp32, where the scheme is exact, all of them."""
    return round(sum(a == b for a, b in zip(ours, theirs, strict=True)) / len(ours), 4)


if __name__ == "__main__":
    main()
