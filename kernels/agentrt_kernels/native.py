"""What compiled CPU kernels are made of: memory by its address, half floats, and torch's own team of threads.

Compiled by numba. A kernel is a C function of one pointer; every thread of the team runs it once, and the threads
share work through atomic counters. The team is the one torch computes with: a second team of OpenMP threads in the
process would make libgomp stop waiting actively, which costs every small product of a step a wake-up.
"""

import ctypes
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import torch
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

_F32, _I32, _I64 = ir.FloatType(), ir.IntType(32), ir.IntType(64)


@intrinsic
def memory(context: Any, address: Any) -> Any:
    """The memory at an int64 address, for `numba.carray`."""
    return types.voidptr(types.int64), lambda _, build, __, args: build.inttoptr(args[0], cgutils.voidptr_t)


@intrinsic
def address_of(context: Any, pointer: Any) -> Any:
    """The inverse of `memory`."""
    return types.int64(types.voidptr), lambda _, build, __, args: build.ptrtoint(args[0], _I64)


@intrinsic
def as_float(context: Any, bits: Any) -> Any:
    """The float32 of these int32 bits."""
    return types.float32(types.int32), lambda _, build, __, args: build.bitcast(args[0], _F32)


@intrinsic
def as_bits(context: Any, number: Any) -> Any:
    """The int32 bits of a float32."""
    return types.int32(types.float32), lambda _, build, __, args: build.bitcast(args[0], _I32)


@intrinsic
def widen(context: Any, stored: Any) -> Any:
    """float32 of a stored element: of float32 itself, or of the uint16 bits of a bfloat16."""
    if stored == types.float32:
        return types.float32(types.float32), lambda _, __, ___, args: args[0]

    def shift(_: Any, build: Any, __: Any, args: Any) -> Any:
        return build.bitcast(build.shl(build.zext(args[0], _I32), ir.Constant(_I32, 16)), _F32)

    return types.float32(types.uint16), shift


@intrinsic
def fetch_add(context: Any, address: Any, amount: Any) -> Any:
    """Add to the int64 at an address, at once for all threads; returns what was there before."""

    def add(_: Any, build: Any, __: Any, args: Any) -> Any:
        return build.atomic_rmw("add", build.inttoptr(args[0], _I64.as_pointer()), args[1], "acq_rel")

    return types.int64(types.int64, types.int64), add


@intrinsic
def prefetch(context: Any, address: Any) -> Any:
    """Ask for the cache line at an address, which need not be memory of ours."""

    def ask(context: Any, build: Any, __: Any, args: Any) -> Any:
        bits = [ir.Constant(_I32, number) for number in (0, 3, 1)]  # to read, keep close, data
        kind = ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t, _I32, _I32, _I32])
        function = cgutils.get_or_insert_function(build.module, kind, "llvm.prefetch.p0i8")
        build.call(function, [build.inttoptr(args[0], cgutils.voidptr_t), *bits])
        return context.get_dummy_value()

    return types.void(types.int64), ask


@cache
def team_runner() -> Callable[[int, int, int], None] | None:
    """`run(function, data, threads)`: torch's OpenMP team calls the C function at an address on `data`.

    None where torch has no libgomp to share (other systems' wheels use another OpenMP).
    """
    library = _loaded_libgomp()
    if library is None:
        return None
    parallel = library.GOMP_parallel
    parallel.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
    parallel.restype = None

    def run(function: int, data: int, threads: int) -> None:
        parallel(function, data, threads, 0)

    return run


def _loaded_libgomp() -> ctypes.CDLL | None:
    only_if_loaded = getattr(os, "RTLD_NOLOAD", None)
    if only_if_loaded is None:
        return None
    home = Path(torch.__file__).parent
    bundled = [*home.glob("lib/libgomp*"), *home.parent.glob("torch.libs/libgomp*")]
    for name in (*map(str, bundled), "libgomp.so.1"):
        try:
            return ctypes.CDLL(name, mode=only_if_loaded | os.RTLD_NOW)
        except OSError:
            continue
    return None
