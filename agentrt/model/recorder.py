"""What records a step's launches and starts them again: CUDA graphs, and where there are any."""

from collections.abc import Callable
from typing import Any, Literal, Protocol

import torch

CudaGraphs = Literal["off", "auto"]


class Recorder(Protocol):
    """Records what a function launches on a device."""

    def record(self, launch: Callable[[], torch.Tensor]) -> tuple[Callable[[], None], torch.Tensor]:
        """What launches the same again, with the same arguments, and the tensor that then holds the result.

        `launch` may be called several times. Raises RuntimeError where it cannot be recorded.
        """
        ...


class CudaRecorder:
    """CUDA's own graphs. All share one pool of memory: a result must be taken before another graph runs."""

    def __init__(self) -> None:
        self._pool: Any = None

    def record(self, launch: Callable[[], torch.Tensor]) -> tuple[Callable[[], None], torch.Tensor]:
        side: torch.cuda.Stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            launch()  # kernels are compiled, scratch grows, libraries take their workspaces: none may happen below
        torch.cuda.current_stream().wait_stream(side)
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        # thread_local: another engine's thread may allocate meanwhile
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            out = launch()
        return graph.replay, out


def obstacle(device: torch.device | str, backend: str) -> str | None:
    """Why no step can be recorded for this device and backend, or None."""
    device = torch.device(device)
    if device.type != "cuda":
        return f"the device is {device.type}, not cuda"
    return None if backend == "triton" else f"the backend is {backend}, not triton"
