"""What the kernels take, in one place."""

from typing import Final

import torch

HEAD_DIMS: Final = (16, 256)
"""The least and the most."""
MAX_RANK: Final = 128
DTYPES: Final = (torch.float16, torch.bfloat16, torch.float32)


def check_rank(argument: str, rank: int) -> None:
    """Raises ValueError naming the argument."""
    if not 1 <= rank <= MAX_RANK:
        raise ValueError(f"{argument}: rank {rank} is not supported, only 1 to {MAX_RANK}")


def check_dtype(argument: str, dtype: torch.dtype) -> None:
    """Raises ValueError naming the argument."""
    if dtype not in DTYPES:
        raise ValueError(f"{argument}: dtype {dtype} is not supported, only {', '.join(map(str, DTYPES))}")


def check_head_dim(argument: str, head_dim: int) -> None:
    """Raises ValueError naming the argument."""
    if not HEAD_DIMS[0] <= head_dim <= HEAD_DIMS[1]:
        raise ValueError(f"{argument}: head_dim {head_dim} is not supported, only {HEAD_DIMS[0]} to {HEAD_DIMS[1]}")
