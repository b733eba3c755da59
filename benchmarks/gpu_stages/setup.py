"""What the stages share: sizes, the clock, and the result as it grows."""

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import torch
import triton

from agentrt.errors import EngineClosedError
from benchmarks.machine import describe

if TYPE_CHECKING:
    from agentrt.engine import Engine
    from benchmarks.gpu_stages.llama import Llama


@dataclass(frozen=True)
class Setup:
    """Sizes of one run of the benchmark. `lengths`: cached tokens; `contexts`: the trace's C, longest first."""

    device: torch.device
    dtype: torch.dtype
    heads: int
    kv_heads: int
    head_dim: int
    rank: int
    lengths: tuple[int, ...]
    prefill_rows: int
    batches: tuple[int, ...]
    contexts: tuple[int, ...]
    model: dict[str, Any]
    repeats: int
    least_s: float
    """No engine is started for less time than this."""
    smoke: bool

    @cached_property
    def llama(self) -> "Llama":
        """The model of the stages that need one."""
        from benchmarks.gpu_stages.llama import Llama

        return Llama(self)

    def describe(self) -> dict[str, Any]:
        """What a result declares, in plain JSON types."""
        sizes = {f"attention_{name}": getattr(self, name) for name in ("heads", "kv_heads", "head_dim", "rank")}
        machine = {**describe(), "triton": triton.__version__}
        return {"machine": machine, "dtype": str(self.dtype).removeprefix("torch."), "smoke": self.smoke, **sizes}

    def seconds(self, run: Callable[[], object]) -> float:
        """Median time of one call on the device, its caches cold; the first calls, which compile, are not counted.

        On CUDA the call is captured in a graph: small kernels take longer to launch from Python than to run.
        """
        run()
        if self.device.type == "cuda":
            return median(self._on_cuda(run))
        times = []
        for _ in range(self.repeats):
            began = time.perf_counter()
            run()
            times.append(time.perf_counter() - began)
        return median(times)

    def _on_cuda(self, run: Callable[[], object]) -> list[float]:
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            run()
        side.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            run()
        times = []
        for _ in range(self.repeats + 1):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            self._cold.zero_()
            start.record()
            graph.replay()
            end.record()
            end.synchronize()
            times.append(start.elapsed_time(end) / 1e3)
        return times[1:]

    @cached_property
    def _cold(self) -> torch.Tensor:
        """More than any device's cache holds; writing it evicts what a repeat would find there."""
        return torch.empty(1 << 28, dtype=torch.uint8, device=self.device)

    def host_seconds(self, run: Callable[[], object]) -> float:
        """Median time the host spends on a call that it does not wait for."""
        times = []
        for _ in range(self.repeats + 1):
            began = time.perf_counter()
            run()
            times.append(time.perf_counter() - began)
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        return median(times[1:])


LLAMA_8B = {
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "rope_theta": 500000.0,
}
TINY = {
    "hidden_size": 48,
    "intermediate_size": 91,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 211,
    "max_position_embeddings": 512,
    "rope_theta": 10000.0,
}


def choose_setup(*, smoke: bool) -> Setup:
    """Llama-3.1-8B's sizes on the CUDA device, or tiny ones on the CPU. Raises SystemExit without a device."""
    if smoke:
        torch.set_num_threads(1)
        sizes = {"lengths": (40, 70), "prefill_rows": 9, "batches": (1, 2), "contexts": (5,), "repeats": 1}
        sizes |= {"least_s": 0.0}
        return Setup(torch.device("cpu"), torch.float32, 4, 2, 16, 4, model=TINY, smoke=True, **sizes)
    if not torch.cuda.is_available():
        raise SystemExit("benchmarks.gpu: no CUDA device; --smoke runs the same code on the CPU")
    sizes = {"lengths": (8192, 66048), "prefill_rows": 2048, "batches": (1, 16), "contexts": (16384, 4096, 1024, 256)}
    sizes |= {"least_s": 20.0}
    return Setup(torch.device("cuda"), torch.bfloat16, 32, 8, 128, 8, model=LLAMA_8B, smoke=False, repeats=10, **sizes)


class OutOfTimeError(Exception):
    """The time limit came in the middle of a measurement; `partial` is what is known by then."""

    def __init__(self, partial: Mapping[str, Any]) -> None:
        super().__init__()
        self.partial = dict(partial)


class Report:
    """The result, kept on disk as it grows, and the time that is left."""

    def __init__(self, header: dict[str, Any], out: Path | None, deadline: float) -> None:
        """`deadline`: on the clock `time.monotonic`."""
        self.result: dict[str, Any] = {**header, "stopped": [], "skipped": [], "left_out": {}}
        self._out = out
        self._start = time.monotonic()
        self._deadline = deadline

    @property
    def left_s(self) -> float:
        return self._deadline - time.monotonic()

    def add(self, stage: str, name: str, measure: Callable[[], Any], *, needs_s: float = 5.0) -> None:
        """Run `measure` and keep what it returns under [stage][name], unless less than `needs_s` are left.

        A measurement that fails is kept as its error, one that time ends as far as it came; the others still run.
        """
        if self.left_s < needs_s:
            self.result["skipped"].append(f"{stage}: {name}")
            return
        try:
            value = measure()
        except OutOfTimeError as end:
            value = {"stopped": True, **end.partial}
            self.result["stopped"].append(f"{stage}: {name}")
        except Exception as error:  # whatever it is, time on a device is not to be lost
            value = {"error": f"{type(error).__name__}: {error}"}
        self.result.setdefault(stage, {})[name] = value
        self.result["elapsed_s"] = round(time.monotonic() - self._start, 1)
        self.save()

    @contextmanager
    def bounded(self, engine: "Engine", partial: Mapping[str, Any]) -> Iterator[None]:
        """Close the engine if time is up meanwhile, which ends what it does within a step.

        Raises OutOfTimeError with `partial`, as it then is.
        """
        timer = threading.Timer(max(0.0, self.left_s), engine.close)
        timer.start()
        try:
            yield
        except EngineClosedError:
            raise OutOfTimeError(partial) from None
        finally:
            timer.cancel()
            timer.join()

    def save(self) -> None:
        if self._out is not None:
            self._out.parent.mkdir(parents=True, exist_ok=True)
            partial = self._out.with_suffix(".partial")
            partial.write_text(json.dumps(self.result, indent=1), encoding="utf-8")
            partial.replace(self._out)
