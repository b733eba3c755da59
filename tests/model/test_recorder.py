"""CUDA's recorder, with the calls of torch.cuda replaced: their order, and that torch takes their arguments."""

import inspect
from contextlib import contextmanager

import pytest
import torch

from agentrt.model.recorder import CudaRecorder, obstacle


@pytest.fixture
def said(monkeypatch):
    """What is called, in order."""
    calls = []
    takes = inspect.signature(torch.cuda.graph.__init__)

    class Stream:
        def __init__(self, name="side"):
            self.name = name

        def wait_stream(self, other):
            calls.append(f"{self.name} waits for {other.name}")

    class Graph:
        def replay(self):
            calls.append("replay")

    @contextmanager
    def stream(on):
        calls.append(f"on {on.name}")
        yield
        calls.append(f"off {on.name}")

    @contextmanager
    def graph(*args, **named):
        bound = takes.bind(None, *args, **named)
        assert isinstance(bound.arguments["cuda_graph"], Graph)
        assert bound.arguments["capture_error_mode"] == "thread_local"
        calls.append(f"record in {bound.arguments['pool']}")
        yield
        calls.append("recorded")

    pools = iter(("pool 1", "pool 2"))
    for name, double in (
        ("Stream", Stream),
        ("current_stream", lambda: Stream("main")),
        ("stream", stream),
        ("CUDAGraph", Graph),
        ("graph", graph),
        ("graph_pool_handle", lambda: next(pools)),
    ):
        assert hasattr(torch.cuda, name)
        monkeypatch.setattr(torch.cuda, name, double)
    return calls


def test_a_function_runs_once_on_a_stream_of_its_own_before_it_is_recorded(said):
    made = []

    def launch():
        said.append("launch")
        made.append(torch.zeros(1))
        return made[-1]

    replay, out = CudaRecorder().record(launch)
    assert said == [
        "side waits for main",
        "on side",
        "launch",
        "off side",
        "main waits for side",
        "record in pool 1",
        "launch",
        "recorded",
    ]
    assert out is made[1]
    replay()
    assert said[-1] == "replay"


def test_all_graphs_of_a_recorder_share_their_memory(said):
    recorder = CudaRecorder()
    for _ in range(2):
        recorder.record(lambda: torch.zeros(1))
    assert [call for call in said if call.startswith("record in")] == ["record in pool 1"] * 2


def test_what_stands_in_the_way_is_named():
    assert obstacle("cpu", "triton") == "the device is cpu, not cuda"
    assert obstacle("cuda", "reference") == "the backend is reference, not triton"
    assert obstacle("cuda", "triton") is None
