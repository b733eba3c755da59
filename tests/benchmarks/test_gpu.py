"""The device benchmark runs whole on a CPU, tiny and interpreted, with nothing but the libraries it names, in time."""

import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from agentrt.evaluate.replay.trace import Call, Trace
from agentrt.schemes import SCHEMES
from benchmarks.gpu_stages import decode, trace
from benchmarks.gpu_stages.llama import AGENTS
from benchmarks.gpu_stages.setup import Report, choose_setup

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
    assert result["skipped"] == result["stopped"] == []
    for stage in ("checks", "rates", "attention", "decode", "trace"):
        assert result[stage]
        assert not [each for each in result[stage].values() if "error" in each and "bound" not in each], result[stage]
    for name, run in result["decode"].items():
        graphs = run["cuda_graphs"]
        assert graphs["same_tokens"], name
        assert graphs["replayed"] > graphs["recorded"] > 0, name
    rows = {name.split()[1]: run["prefill_rows"] for name, run in result["trace"].items()}
    assert rows["non_shared"] > rows["pre_lr_shared"] == rows["full_shared"]
    assert rows["rebase_shared:auto,adapted_tail=16"] == rows["ridge"] == rows["full_shared"]
    assert list(result["left_out"]) == ["trace: alora"]
    assert "no activated LoRA" in result["left_out"]["trace: alora"]
    assert {name.partition(":")[0] for name in rows} == set(SCHEMES) - {"alora"}


def test_no_measurement_starts_after_the_time_limit(tmp_path):
    done = bench("--time-limit", 0, "--out", tmp_path / "gpu.json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert not result.keys() & {"checks", "rates", "attention", "decode", "trace"}
    assert "rates: copy" in result["skipped"]
    assert "trace: C=5 non_shared" in result["skipped"]


@pytest.mark.slow
def test_a_small_time_limit_is_kept_and_everything_is_accounted_for(tmp_path):
    limit = 30
    began = time.monotonic()
    done = bench("--time-limit", limit, "--stages", "decode,trace", "--out", tmp_path / "gpu.json")
    took_s = time.monotonic() - began
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert took_s < limit + 15  # a step, and to leave the process
    ran = [f"{stage}: {name}" for stage in ("decode", "trace") for name in result.get(stage, {})]
    assert set(result["stopped"]) <= set(ran)
    everything = [*ran, *result["skipped"], *result["left_out"]]
    assert len(everything) == len(set(everything))
    assert {name.split()[-1].partition(":")[0] for name in everything if "trace" in name} == set(SCHEMES)


@pytest.mark.parametrize(("stage", "count"), [(trace, 20), (decode, 3)], ids=["trace", "decode"])
def test_what_runs_when_time_is_up_is_stopped_and_kept_as_far_as_it_came(stage, count, tmp_path):
    setup = replace(choose_setup(smoke=True), contexts=(200,), lengths=(200, 210))  # seconds, in the interpreter
    assert setup.llama.adapters.names  # what is made once is not to take the time
    report = Report({}, tmp_path / "gpu.json", time.monotonic() + 1)
    stage.run(setup, report)
    assert -report.left_s < 20
    result = json.loads((tmp_path / "gpu.json").read_text("utf-8"))
    name = stage.__name__.rpartition(".")[2]
    (kept,) = result[name].values()
    assert kept["stopped"]
    assert result["stopped"] == [f"{name}: {next(iter(result[name]))}"]
    assert len(report.result["skipped"]) == count - 1
    if stage is trace:
        assert kept["calls_done"] < kept["calls"] == 3


def test_a_run_that_would_take_longer_than_is_left_is_not_started(tmp_path):
    setup, report = choose_setup(smoke=True), Report({}, None, time.monotonic() + 600)
    one = Trace("react", 5, AGENTS, (Call("plan", 600, 0),))
    for scheme, paces in (("non_shared", {"non_shared": 1.0, "full_shared": 0.1}), ("own_kv", {"non_shared": 1.0})):
        trace.add_run(setup, report, scheme, one, paces, tmp_path)
    assert report.result["skipped"] == ["trace: C=5 non_shared", "trace: C=5 own_kv"]
    assert "trace" not in report.result


def test_a_failed_measurement_is_kept_and_the_others_run(tmp_path):
    report = Report({}, tmp_path / "gpu.json", time.monotonic() + 60)

    def fail():
        raise RuntimeError("out of memory")

    report.add("stage", "first", fail)
    report.add("stage", "second", lambda: {"seconds": 1.0})
    kept = json.loads((tmp_path / "gpu.json").read_text("utf-8"))
    assert kept["stage"] == {"first": {"error": "RuntimeError: out of memory"}, "second": {"seconds": 1.0}}
