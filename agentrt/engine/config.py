"""Limits of an engine."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import get_args

from agentrt.cache.plane import PlaneSpec
from agentrt.errors import UsageError
from agentrt.model.recorder import CudaGraphs


@dataclass(frozen=True)
class EngineConfig:
    """Limits of an engine. `max_context` None = the backbone's positions; budgets None = no limit.

    A budget of tokens is worth their bytes under the scheme: one row of each of its planes, K and V plus columns.
    Raises UsageError where both budgets are given, for a negative `room_timeout_s` or an unknown `cuda_graphs`.
    """

    kv_budget_bytes: int | None = None
    kv_budget_tokens: int | None = None
    max_context: int | None = None
    max_waiting: int | None = 1024
    """Most turns that may wait for their first token; one more raises QueueFullError."""
    room_timeout_s: float = 60.0
    """How long a turn waits for room in the budget while nothing runs and sessions between two turns hold slots; then
    it raises CacheFullError. 0: at once. While anything runs it waits without limit."""
    max_step_tokens: int = 2048
    chunk_tokens: int = 512
    """Most rows that make somebody wait: of a step in which turns decode, and of passes nobody waits for. A pass that
    chooses among all its rows (selective schemes) is not cut, and may be longer."""
    ride_rows: int | None = None
    """Rows of a scheme's own work that may ride in each step's decode; None = measured at start-up."""
    max_preambles: int = 32
    """Preambles kept for later sessions, the least recently used first out; 0 keeps none."""
    cuda_graphs: CudaGraphs = "off"
    """`auto`: record decode steps where device and step allow, and replay them; `EngineStats.graphs` says which."""
    segment_slots: int = 4096
    poison: bool = False
    """Fill fresh slots with NaN, so that a read of a slot nobody wrote shows. For tests."""

    def __post_init__(self) -> None:
        if self.kv_budget_bytes is not None and self.kv_budget_tokens is not None:
            raise UsageError("give kv_budget_bytes or kv_budget_tokens, not both")
        if not self.room_timeout_s >= 0:
            raise UsageError(f"room_timeout_s is {self.room_timeout_s!r}; give seconds from 0 up")
        if self.cuda_graphs not in get_args(CudaGraphs):
            raise UsageError(f"cuda_graphs: {self.cuda_graphs!r} is none of {', '.join(get_args(CudaGraphs))}")

    def budget_bytes(self, planes: Iterable[PlaneSpec]) -> int | None:
        """The budget in bytes for a scheme with these planes."""
        if self.kv_budget_tokens is None:
            return self.kv_budget_bytes
        return self.kv_budget_tokens * sum(plane.row_bytes for plane in planes)
