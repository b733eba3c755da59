"""Limits and counters of an engine."""

from dataclasses import dataclass

from agentrt.cache.prefix import PrefixUse


@dataclass(frozen=True)
class EngineConfig:
    """Limits of an engine. `max_context` None = the backbone's positions; budgets None = no limit."""

    kv_budget_bytes: int | None = None
    max_context: int | None = None
    max_step_tokens: int = 2048
    idle_chunk_tokens: int = 512
    ride_rows: int | None = None
    """Rows of a scheme's own work that may ride in each step's decode; None = measured at start-up."""
    max_preambles: int = 32
    """Preambles kept for later sessions, the least recently used first out; 0 keeps none."""
    segment_slots: int = 4096
    poison: bool = False
    """Fill fresh slots with NaN, so that a read of a slot nobody wrote shows. For tests."""


@dataclass(frozen=True)
class EngineStats:
    """Counters since the start; rows are tokens run through the layers."""

    steps: int = 0
    prefill_rows: int = 0
    decode_rows: int = 0
    neutral_rows: int = 0
    held_bytes: int = 0
    peak_bytes: int = 0
    sessions: int = 0
    preambles_kept: int = 0
    preambles: tuple[PrefixUse, ...] = ()
    """For each adapter and the path that computed what it read: hits, misses and reused tokens."""
