"""Kernels compile for an H100 or H200 (sm_90), with real arguments, on a machine without a GPU."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_every_launch_compiles_for_sm_90(tmp_path):
    """In a process of its own: in this one kernels are interpreted."""
    environment = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(tmp_path),
        "TRITON_CACHE_DIR": str(tmp_path),
        "TRITON_DEFAULT_FP_FUSION": "1",
        "PYTHONPATH": ":".join(sys.path),
    }
    command = [sys.executable, "-m", "tests.kernels.sm90"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    compiled = json.loads(done.stdout)
    attention = {name: each for name, each in compiled.items() if name.endswith("attend_kernel")}
    assert len(attention) == 9
    assert {name.partition(": ")[2] for name in compiled} == {
        "attend_kernel",
        "combine_kernel",
        "append_kernel",
        "project_kernel",
        "shrink_kernel",
        "expand_kernel",
    }
    for name, each in compiled.items():
        assert each["shared_bytes"] <= 227 * 1024, name  # what a multiprocessor has
    for name, each in attention.items():
        assert each["wide_copies"] > 0, name  # rows are read 16 bytes at a time, asynchronously
        assert each["spilled_bytes"] <= 256, name  # a thread
        assert each["products"] > 0 or name.startswith("fp32:"), name  # on tensor cores
