"""Limits of an engine."""

from dataclasses import dataclass


@dataclass(frozen=True)
class EngineConfig:
    """Limits of an engine. `max_context` None = the backbone's positions; budgets None = no limit."""

    kv_budget_bytes: int | None = None
    max_context: int | None = None
    max_waiting: int | None = 1024
    """Most turns that may wait for their first token; one more raises QueueFullError."""
    max_step_tokens: int = 2048
    idle_chunk_tokens: int = 512
    ride_rows: int | None = None
    """Rows of a scheme's own work that may ride in each step's decode; None = measured at start-up."""
    segment_slots: int = 4096
    poison: bool = False
    """Fill fresh slots with NaN, so that a read of a slot nobody wrote shows. For tests."""
