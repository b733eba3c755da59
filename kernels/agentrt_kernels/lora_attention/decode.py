"""A step's single rows, attended in one call a layer by the compiled kernel of `jit.py`: its tables and its launch."""

import ctypes
import itertools
import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final

import numpy as np
import torch

from agentrt_kernels.lora_attention.partners import stretches
from agentrt_kernels.lora_attention.pieces import Row
from agentrt_kernels.machine import compiles

_BASE_2: Final = 1 / math.log(2)


def obstacle(device: torch.device, dtype: torch.dtype) -> str | None:
    """Why rows of such planes cannot be attended here, or None."""
    if device.type != "cpu":
        return f"the device is {device.type}, not cpu"
    if dtype not in (torch.bfloat16, torch.float32):
        return f"dtype {dtype} is not supported"
    if not compiles():
        return "numba is not installed"
    from agentrt_kernels.native import team_runner  # imports numba

    return None if team_runner() else "torch does not compute with libgomp here"


def prepare(dtype: torch.dtype, head_dim: int, group: int, rank: int = 0) -> None:
    """Compile the kernel for planes of `dtype` and low-rank rows of up to `rank` columns now, not at a first token.

    That takes seconds, once a machine: numba keeps it.
    """
    _launcher(dtype, head_dim, group, rank)


class Decode:
    """The rows of one step. Addresses must stay valid, and planes as they are, until the step is over."""

    def __init__(
        self, rows: Sequence[Row], *, dtype: torch.dtype, kv_heads: int, group: int, head_dim: int, num_layers: int
    ) -> None:
        from agentrt_kernels.lora_attention import jit  # imports numba

        self._jit = jit
        self._shape = (kv_heads * group, head_dim)
        self._dtype = dtype
        pieces: list[tuple[int, ...]] = []
        chunks: list[tuple[list[int], list[tuple[int, int, int]]]] = []
        of_row: list[list[tuple[int, int]]] = [[] for _ in rows]
        for stretch in stretches(rows):
            members = []
            for number, piece in stretch.members:
                members.append((len(pieces), rows[number].rank if piece.lr else 0, number))
                pieces.append((*piece.k, *piece.v, *(piece.lr or (0, 0, 0))))
            num = -(-stretch.length // jit.CHUNK)
            edges = [index * stretch.length // num for index in range(num + 1)]
            for low, high in itertools.pairwise(edges):
                for place, (number, _) in enumerate(stretch.members):
                    of_row[number].append((len(chunks), place))
                chunks.append(([low, high - low], members))
        # a row's partial results lie side by side, whoever shares its chunks
        first = list(itertools.accumulate(map(len, of_row), initial=0))
        part = {member: at for at, member in enumerate(itertools.chain.from_iterable(of_row))}
        nobody = (0, 0, jit.NOBODY, 0)
        cut = []
        for number, (keys, members) in enumerate(chunks):
            told = [(*each, part[number, place]) for place, each in enumerate(members)]
            cut.append((*keys, *itertools.chain.from_iterable([*told, nobody][: jit.MEMBERS])))
        rank = max(row.rank for row in rows)
        self._launch = _launcher(dtype, head_dim, group, rank)
        table = [(row.at, first[n], first[n + 1] - first[n], n, row.rank) for n, row in enumerate(rows)]
        ups = [row.ups or [0] * num_layers for row in rows]
        self._left = np.repeat(np.array([row[2] for row in table], np.int64), kv_heads)
        parts = np.empty(first[-1] * kv_heads * group * (2 + head_dim + rank), np.float32)
        self._keep: list[Any] = [*(np.array(each, np.int64) for each in (pieces, cut, table, ups)), parts]
        self._step = np.zeros(16, np.int64)
        for column, array in zip((jit.PIECES, jit.CHUNKS, jit.ROWS, jit.UPS, jit.PARTS), self._keep, strict=True):
            self._step[column] = array.ctypes.data
        self._step[jit.LEFT] = self._left.ctypes.data
        self._step[jit.TASKS] = len(chunks) * kv_heads
        self._step[jit.HEADS], self._step[jit.RANK], self._step[jit.LAYERS] = kv_heads, rank, num_layers
        self._data = self._step.ctypes.data

    def run(self, layer: int, query: torch.Tensor, out: torch.Tensor, scale: float) -> None:
        """Attend the rows: query and out [rows, H, d], contiguous, of the planes' dtype."""
        heads, d = self._shape
        for name, tensor in (("query", query), ("out", out)):
            if tensor.shape[1:] != self._shape or tensor.dtype != self._dtype or not tensor.is_contiguous():
                raise ValueError(f"{name}: contiguous {self._dtype} [rows, {heads}, {d}] expected")
        jit, step = self._jit, self._step
        step[jit.NEXT], step[jit.LAYER] = 0, layer
        step[jit.QUERY], step[jit.OUT] = query.data_ptr(), out.data_ptr()
        step[jit.SCALE] = np.float32(scale * _BASE_2).view(np.int32)
        self._launch(self._data)


@cache
def _launcher(dtype: torch.dtype, head_dim: int, group: int, rank: int) -> Callable[[int], None]:
    from agentrt_kernels.lora_attention.jit import PAD, compiled
    from agentrt_kernels.native import team_runner

    entry = compiled(dtype, head_dim, group, -(-rank // PAD) * PAD)
    function = entry.address
    alone = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(function)
    team = team_runner()
    assert team is not None, "see `obstacle`"

    def launch(data: int) -> None:
        threads = torch.get_num_threads()
        if threads > 1:
            team(function, data, threads)
        else:
            alone(data)

    return launch
