"""A soak of the default team on the default model: `python -m benchmarks.soak`, 30 minutes. Exit code 1 on a fault.

fp32, so that a replay must give the same tokens whatever ran beside. Tools answer from nothing, and hang at times.
"""

import argparse
import sys

from agentrt import Runtime, Team
from agentrt.questions.datasets import load_questions
from benchmarks.soak.run import soak
from benchmarks.soak.tool import HangingTool, patient


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--replays", type=int, default=100)
    parser.add_argument("--team", default="search")
    parser.add_argument("--scheme", default="rebase_shared:auto")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    team = Team.load(args.team, overrides=patient(Team.load(args.team)))
    tools = {name: HangingTool(name) for name in team.tools}
    with Runtime(team, scheme=args.scheme, tools=tools, dtype="float32") as runtime:
        report = soak(
            runtime,
            [question.text for question in load_questions("mini", split=None)],
            seconds=args.minutes * 60,
            workers=args.workers,
            replays=args.replays,
            seed=args.seed,
            say=print,
        )
    for name, value in vars(report).items():
        print(f"{name}: {value}")
    return 1 if report.faults else 0


if __name__ == "__main__":
    sys.exit(main())
