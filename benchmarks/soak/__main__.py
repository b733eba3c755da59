"""A soak of the default team on the default model: `python -m benchmarks.soak --out soak.json`, 30 minutes of load.

fp32, so that a replay must give the same tokens whatever ran beside. The KV budget has room for some of the workers
only, and few turns may wait. Tools answer from nothing, and hang at times. Exit code 1 on a fault.
"""

import argparse
import faulthandler
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from agentrt import Engine, EngineConfig, Runtime, Team
from agentrt.questions.datasets import load_questions
from benchmarks.soak.report import Report, SoakPlan
from benchmarks.soak.run import soak
from benchmarks.soak.tool import HangingTool, patient


def main(arguments: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(arguments)
    plan = SoakPlan(
        seconds=args.minutes * 60,
        round_s=args.round_minutes * 60,
        warm_up_s=args.warm_up_minutes * 60,
        workers=args.workers,
        seed=args.seed,
        replays=args.replays,
    )
    team = Team.load(args.team, overrides=patient(Team.load(args.team)))
    tools = {name: HangingTool(name, every=args.hang_every) for name in team.tools}
    limits = EngineConfig(kv_budget_tokens=args.kv_tokens, max_waiting=args.max_waiting, room_timeout_s=5.0)
    loaded = Engine.load(team.base.model, team.adapters(), args.scheme, dtype="float32", config=limits)
    questions = [question.text for question in load_questions("mini", split=None)]

    def save(report: Report) -> None:
        if args.out is not None:
            report.write(args.out)

    with tempfile.TemporaryDirectory() as folder, loaded as engine:
        runtime = Runtime(team, engine=engine, tools=tools, out=folder)
        report = soak(runtime, questions, plan, folders=Path(folder), say=print, save=save)
        for name, value in report.to_json().items():
            print(f"{name}: {value}")
        if report.stuck:  # closing would wait for what never ends
            faulthandler.dump_traceback()
            shutil.rmtree(folder, ignore_errors=True)
            sys.stdout.flush()
            os._exit(1)
        runtime.close()
    return 0 if report.verdict == "passed" else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="benchmarks.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0, help="of load, beside the warm-up and the replays")
    parser.add_argument("--round-minutes", type=float, default=1.0)
    parser.add_argument("--warm-up-minutes", type=float, default=2.0)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--replays", type=int, default=96, help="at most so many episodes and as many sessions")
    parser.add_argument("--kv-tokens", type=int, default=4000, help="the KV budget, as in EngineConfig")
    parser.add_argument("--max-waiting", type=int, default=6, help="turns that may wait for their first token")
    parser.add_argument("--hang-every", type=int, default=8, help="a tool hangs for one argument in so many")
    parser.add_argument("--team", default="search")
    parser.add_argument("--scheme", default="rebase_shared:auto")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="a JSON file, written after every round and with the verdict")
    return parser


if __name__ == "__main__":
    sys.exit(main())
