"""Which implementation of the kernels runs: Triton, or the torch references."""

from typing import Literal, get_args

import torch

from agentrt_kernels.limits import DTYPES, check_head_dim
from agentrt_kernels.machine import installed, interprets

Backend = Literal["auto", "triton", "reference"]
Resolved = Literal["triton", "reference"]


def resolve(backend: Backend, device: torch.device | str, *, head_dim: int, dtype: torch.dtype) -> Resolved:
    """What `backend` means for a model on this device. What is named explicitly runs, or raises ValueError.

    auto: Triton on CUDA where it is installed and takes the model's shape, else the references.
    """
    if backend not in get_args(Backend):
        raise ValueError(f"backend: {backend!r} is none of {', '.join(get_args(Backend))}")
    if backend == "reference":
        return "reference"
    device = torch.device(device)
    obstacle = _obstacle(device, head_dim, dtype)
    if backend == "triton":
        if obstacle:
            raise ValueError(f"backend: triton cannot run here: {obstacle}; choose auto or reference")
        return "triton"
    return "triton" if device.type == "cuda" and not obstacle else "reference"


def _obstacle(device: torch.device, head_dim: int, dtype: torch.dtype) -> str | None:
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
