"""What every launch needs to know about the compilers on this machine; imports triton only when asked."""

from functools import cache
from importlib.util import find_spec
from typing import Any

import torch


@cache
def interprets() -> bool:
    """Whether kernels run in Triton's interpreter: TRITON_INTERPRET was 1 when triton was first imported."""
    import triton.language as tl
    from triton.runtime.interpreter import InterpretedFunction

    return isinstance(tl.sum, InterpretedFunction)


def installed() -> bool:
    return find_spec("triton") is not None


def compiles() -> bool:
    """Whether numba is there to compile kernels for the CPU."""
    return find_spec("numba") is not None


def upcasts(dtype: torch.dtype) -> bool:
    """Whether products must be taken in fp32: the interpreter's `tl.dot` multiplies the bits of bf16 operands."""
    return interprets() and dtype == torch.bfloat16


def element(dtype: torch.dtype) -> Any:
    """Triton's name of a float dtype."""
    import triton.language as tl

    return {torch.float16: tl.float16, torch.bfloat16: tl.bfloat16, torch.float32: tl.float32}[dtype]


def block(width: int, least: int = 16) -> int:
    """The power of two that holds `width` columns; Triton's tiles are powers of two, its products take 16 or more."""
    return max(least, 1 << (width - 1).bit_length())
