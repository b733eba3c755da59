"""Which implementation of the kernels runs: Triton, the torch references, or these with compiled decode on a CPU."""

from typing import Literal, get_args

import torch

from agentrt_kernels.limits import DTYPES, check_head_dim
from agentrt_kernels.lora_attention import decode
from agentrt_kernels.machine import installed, interprets

Backend = Literal["auto", "triton", "jit", "reference"]
Resolved = Literal["triton", "jit", "reference"]


def resolve(backend: Backend, device: torch.device | str, *, head_dim: int, dtype: torch.dtype) -> Resolved:
    """What `backend` means for a model on this device. What is named explicitly runs, or raises ValueError.

    auto: Triton on CUDA where it is installed and takes the model's shape; on a CPU jit (the references, with decode
    attention compiled by numba) where that can run; else the references.
    """
    if backend not in get_args(Backend):
        raise ValueError(f"backend: {backend!r} is none of {', '.join(get_args(Backend))}")
    device = torch.device(device)
    obstacles = {"triton": _no_triton(device, head_dim, dtype), "jit": decode.obstacle(device, dtype)}
    if backend == "auto":
        preferred: Resolved = "triton" if device.type == "cuda" else "jit"
        return "reference" if obstacles[preferred] else preferred
    if backend != "reference" and obstacles[backend]:
        raise ValueError(f"backend: {backend} cannot run here: {obstacles[backend]}; choose auto or reference")
    return backend


def _no_triton(device: torch.device, head_dim: int, dtype: torch.dtype) -> str | None:
    try:
        check_head_dim("the model", head_dim)
    except ValueError as error:
        return str(error)
    if dtype not in DTYPES:
        return f"dtype {dtype} is not supported"
    if not installed():
        return "triton is not installed"
    if device.type != "cuda" and not interprets():
        return f"the device is {device.type}, not cuda (TRITON_INTERPRET=1 runs the kernels on a CPU, slowly)"
    return None
