"""Fixtures every test may use."""

import importlib
import os
from importlib.util import find_spec
from pathlib import Path

import pytest

# Triton decides when it is imported, and peft imports it, whether kernels run in its interpreter; here they do.
if find_spec("triton"):
    os.environ["TRITON_INTERPRET"] = "1"
    importlib.import_module("triton.experimental.gluon")  # the first launch would
    for name in ("lora_attention.launch", "kv_append.triton", "lr_project.triton", "lora_shrink_expand.triton"):
        importlib.import_module(f"agentrt_kernels.{name}")
    del os.environ["TRITON_INTERPRET"]  # programs that tests start see the machine as it is
    collect_ignore = []
else:  # it has wheels for Linux only
    names = ("packed_attention", "kv_append", "lr_project", "lora_shrink_expand", "compiles")
    collect_ignore = [*(f"kernels/test_{name}.py" for name in names), "model/test_kernels.py", "benchmarks/test_gpu.py"]

import torch

torch.set_num_threads(1)  # tiny models: threads cost more than they give

pytest.register_assert_rewrite("tests.engine.invariants", "tests.reference.held")  # so that their failures tell values


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The design's data folder beside the checkout; tests on it are skipped where it is absent."""
    folder = Path(__file__).resolve().parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("the shared data folder is not beside this checkout")
    return folder
