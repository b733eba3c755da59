"""Measures the Triton kernels, and the engine on them, on one CUDA device; prints one JSON.

    python -m benchmarks.gpu [--time-limit 480] [--out FILE]     on the device
    python -m benchmarks.gpu --smoke                             the same code on a CPU, tiny, through the interpreter

Needs torch, triton, transformers, peft, pydantic and safetensors, in the versions of pyproject.toml, with what these
need; nothing else. Stages run in the order of STAGES until the time is up: from then on nothing starts, and an engine
that runs is stopped after its step. The result says what was stopped, what was skipped for want of time, and what was
left out for another reason; what is done is in --out after every measurement.
"""

import argparse
import importlib
import json
import os
import sys
import time
from pathlib import Path

STAGES = ("checks", "rates", "attention", "decode", "trace")


def main() -> int:
    began = time.monotonic()
    options = _parser().parse_args()
    if options.smoke:
        os.environ["TRITON_INTERPRET"] = "1"  # read when triton is imported, so nothing is imported before
    from benchmarks.gpu_stages.setup import Report, choose_setup

    setup = choose_setup(smoke=options.smoke)
    report = Report(setup.describe(), options.out, began + options.time_limit)
    for name in options.stages.split(","):
        importlib.import_module(f"benchmarks.gpu_stages.{name}").run(setup, report)
    report.save()
    print(json.dumps(report.result, indent=1))
    return 0 if report.result.get("checks_ok", True) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--time-limit", type=float, default=480, metavar="SECONDS", help="for all of it; default %(default)s"
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="where partial results are kept")
    parser.add_argument("--smoke", action="store_true", help="tiny, on the CPU")
    parser.add_argument("--stages", default=",".join(STAGES), help="some of: %(default)s")
    return parser


if __name__ == "__main__":
    sys.exit(main())
