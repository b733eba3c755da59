"""The device benchmark runs whole on a CPU, tiny and interpreted, with nothing but the libraries it names."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

ONLY = """
import importlib.metadata as metadata, runpy, sys
from importlib.machinery import PathFinder
from packaging.requirements import Requirement

named = ["torch", "triton", "transformers", "peft", "pydantic", "safetensors"]
needed = set()
while named:
    name = named.pop().lower().replace("_", "-")
    if name in needed:
        continue
    needed.add(name)
    try:
        required = metadata.requires(name) or ()
    except metadata.PackageNotFoundError:
        continue
    for each in map(Requirement, required):
        if each.marker is None or each.marker.evaluate({"extra": ""}):
            named.append(each.name)
owners = metadata.packages_distributions()
ours = {"agentrt", "agentrt_kernels", "benchmarks"}
blocked = {top for top, names in owners.items() if not needed & {n.lower().replace("_", "-") for n in names}} - ours
blocked |= {"langgraph"}

class Only(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in blocked else super().find_spec(name, path, target)

assert blocked >= {"langgraph", "gguf", "platformdirs", "numba", "llvmlite"}
sys.meta_path[:] = [Only if finder is PathFinder else finder for finder in sys.meta_path]
sys.argv = ["benchmarks.gpu", *sys.argv[1:]]
runpy.run_module("benchmarks.gpu", run_name="__main__")
"""


def bench(*arguments):
    command = [sys.executable, "-W", "ignore", "-c", ONLY, "--smoke", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_smoke_runs_every_stage_on_the_named_libraries_alone(tmp_path):
    done = bench("--out", tmp_path / "gpu.json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result == json.loads((tmp_path / "gpu.json").read_text("utf-8"))
    assert result["checks_ok"]
    assert result["skipped"] == []
    for stage in ("checks", "rates", "attention", "decode", "trace"):
        assert result[stage]
        assert not [each for each in result[stage].values() if "error" in each and "bound" not in each], result[stage]
    for name, run in result["decode"].items():
        graphs = run["cuda_graphs"]
        assert graphs["same_tokens"], name
        assert graphs["replayed"] > graphs["recorded"] > 0, name
    rows = {name.split()[1]: run["prefill_rows"] for name, run in result["trace"].items()}
    assert rows["non_shared"] > rows["pre_lr_shared"] == rows["full_shared"]


def test_no_measurement_starts_after_the_time_limit(tmp_path):
    done = bench("--time-limit", 0, "--out", tmp_path / "gpu.json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert "rates" not in result
    assert "rates: copy" in result["skipped"]


def test_a_failed_measurement_is_kept_and_the_others_run(tmp_path):
    from benchmarks.gpu_stages.setup import Report

    report = Report({}, tmp_path / "gpu.json", 60)

    def fail():
        raise RuntimeError("out of memory")

    report.add("stage", "first", fail)
    report.add("stage", "second", lambda: {"seconds": 1.0})
    kept = json.loads((tmp_path / "gpu.json").read_text("utf-8"))
    assert kept["stage"] == {"first": {"error": "RuntimeError: out of memory"}, "second": {"seconds": 1.0}}
