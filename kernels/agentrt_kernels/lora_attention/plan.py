"""Integer tables of a packed step for the Triton kernels: which program reads which keys for which queries.

Made once a step and used in every layer. Knows positions and slots; no tensors of the cache, no Triton.
"""

import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import torch

from agentrt_kernels.lora_attention.packed import Pass, Run
from agentrt_kernels.tables import Table, upload

PROGRAMS: Final = 264
"""Programs that one pass aims for: two for each of an H100's or H200's 132 multiprocessors."""
MIN_SPLIT_KEYS: Final = 512
"""A part stores its sums in fp32, and the combine reads them: 7 % of what 512 keys cost in a decode step."""
WORK_WIDTH: Final = 9
RUN_WIDTH: Final = 10
TILE_WIDTH: Final = 5


class Blocks(NamedTuple):
    """Tile sizes of a launch: `m` queries times heads of a group, `n` keys; Triton's warps and pipeline stages."""

    m: int
    n: int
    num_warps: int
    num_stages: int


def choose_blocks(tallest: int, group: int, head_dim: int, dtype: torch.dtype, key_rank: int = 0) -> Blocks:
    """`tallest`: query rows times group of the largest pass. Chosen so that sm_90 keeps its sums in registers."""
    m = 16 if tallest <= 16 else 64 if tallest <= 64 else 128
    n = 64 if head_dim <= 128 else 32
    full = dtype == torch.float32
    if full:  # no tensor cores: products are unrolled multiply-adds
        m, n = min(m, 32), 32 if head_dim <= 128 else 16
    elif key_rank:  # the key term takes registers
        m, n = min(m, 64), 32
    while m < group:
        m *= 2
    large = m >= 128 or head_dim > 128 or bool(key_rank) or (full and m > 16)
    return Blocks(m, n, 8 if large else 4, 3 if m == 16 else 2)


@dataclass(frozen=True)
class Plan:
    """Tables on the device, int32.

    work   [num_work, 9]: first row, rows, first run, end run, first key, end key, end of the keys that every row
           sees, adapter or -1, part or -1. Longest first: the last programs to start are short.
    runs   [.., 10]: position, size, then (segment, row) of keys, values, lr and lrk; segment -1 where there is none.
    tiles  [num_tiles, 5] of split queries: first row, rows, adapter or -1, first part, end part.
    """

    blocks: Blocks
    window: int | None
    positions: torch.Tensor
    work: torch.Tensor
    runs: torch.Tensor
    tiles: torch.Tensor
    num_parts: int
    adapted: bool
    """Whether any pass has an adapter."""


class HostPlan(NamedTuple):
    """A plan before its tables are on a device; `tables` in the order of `Plan`."""

    blocks: Blocks
    window: int | None
    tables: tuple[Table, Table, Table, Table]
    num_parts: int
    adapted: bool

    def padded(self) -> "HostPlan":
        """With tables of padded lengths, and room for as many parts as a step of these lengths can have."""
        positions, work, runs, tiles = self.tables
        rows = positions.padded()
        least = len(rows.rows)
        tables = (rows, work.padded(least), runs.padded(4 * least), tiles.padded(least))
        return self._replace(tables=tables, num_parts=len(tables[1].rows) if self.num_parts else 0)

    def upload(self, device: torch.device | str) -> Plan:
        return self.on(upload(self.tables, device))

    def on(self, tensors: Sequence[torch.Tensor]) -> Plan:
        """The plan of its tables on a device."""
        positions, work, runs, tiles = tensors
        return Plan(self.blocks, self.window, positions.view(-1), work, runs, tiles, self.num_parts, self.adapted)


def make_plan(
    positions: Sequence[int],
    passes: Sequence[Pass],
    blocks: Blocks,
    *,
    group: int,
    kv_heads: int,
    window: int | None = None,
    programs: int = PROGRAMS,
    min_split_keys: int = MIN_SPLIT_KEYS,
) -> HostPlan:
    """Cut every pass into tiles of queries, and their keys into parts where the tiles are too few to fill the device.

    `group` query heads share one of `kv_heads` key/value heads; `programs` is how many a pass aims for. How a pass
    is cut depends on nothing but itself, so its sums have the same order in any company.
    """
    first_run = num_parts = 0
    work: list[tuple[int, ...]] = []
    split: list[tuple[int, ...]] = []
    for each in passes:
        adapter = -1 if each.adapter is None else each.adapter
        tiles = _tiles(positions, each, blocks.m // group, window)
        total = sum(tile.high - tile.low for tile in tiles) * kv_heads
        share = max(min_split_keys, -(-total // programs))
        share = -(-share // blocks.n) * blocks.n
        for tile in tiles:
            edges = [*range(tile.low, tile.high, share), tile.high]
            parts = len(edges) - 1
            if parts > 1:
                split.append((tile.row, tile.rows, adapter, num_parts, num_parts + parts))
            for low, high in itertools.pairwise(edges):
                within = _between(each.runs, low, high, first_run)
                part = num_parts if parts > 1 else -1
                num_parts += parts > 1
                work.append((tile.row, tile.rows, *within, low, high, tile.visible, adapter, part))
        first_run += len(each.runs)
    work.sort(key=lambda item: item[4] - item[5])
    runs = [_entry(run) for each in passes for run in each.runs]
    rows = [(position,) for position in positions]
    tables = (Table(rows, 1), Table(work, WORK_WIDTH), Table(runs, RUN_WIDTH), Table(split, TILE_WIDTH))
    return HostPlan(blocks, window, tables, num_parts, any(item[7] >= 0 for item in work))


class _Tile(NamedTuple):
    row: int
    rows: int
    low: int  # keys [low, high) are seen by some row,
    high: int
    visible: int  # and those before `visible` by every row where there is no window


def _tiles(positions: Sequence[int], each: Pass, rows: int, window: int | None) -> list[_Tile]:
    tiles = []
    for row in range(each.start, each.end, rows):
        end = min(row + rows, each.end)
        first, last = positions[row], positions[end - 1]
        low = 0 if window is None else max(0, first - window + 1)
        tiles.append(_Tile(row, end - row, low, last + 1, first + 1))
    return tiles


def _between(runs: Sequence[Run], low: int, high: int, offset: int) -> tuple[int, int]:
    """First and end index, from `offset` on, of the runs that hold positions [low, high)."""
    first = bisect_right(runs, low, key=lambda run: run.position) - 1
    return offset + first, offset + bisect_left(runs, high, key=lambda run: run.position)


def _entry(run: Run) -> tuple[int, ...]:
    keys, low, low_keys = run.keys or run.kv, run.lr or (-1, 0), run.lrk or (-1, 0)
    return (run.position, run.size, *keys, *run.kv, *low, *low_keys)
