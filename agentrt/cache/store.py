"""All planes of one engine under one byte budget: reservations that hold or change nothing, and bytes held.

Preambles kept for later sessions count as held; they leave when a reservation needs their room.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch

from agentrt.cache.plane import Plane, PlaneSpec
from agentrt.cache.prefix import Identity, PrefixCache
from agentrt.cache.slots import Run, Runs
from agentrt.errors import CacheFullError


class Claim(NamedTuple):
    """A wish for `size` slots of a plane, if possible right after slot `after - 1`."""

    plane: str
    size: int
    after: int | None = None


class CacheStore:
    """Planes by name. Not thread-safe: the engine guards it."""

    def __init__(
        self,
        specs: Sequence[PlaneSpec],
        *,
        device: torch.device | str = "cpu",
        budget_bytes: int | None = None,
        segment_slots: int = 4096,
        poison: bool = False,
        identity: Identity | None = None,
        max_preambles: int = 32,
    ) -> None:
        """`identity`: what the slots are computed with; without it no preamble is kept."""
        self.planes = {
            spec.name: Plane(spec, torch.device(device), segment_slots, poison, max_bytes=budget_bytes)
            for spec in specs
        }
        self.budget_bytes = budget_bytes
        self.identity = identity
        self.prefixes = PrefixCache(self.planes, max_preambles)
        self.peak_bytes = 0

    @property
    def held_bytes(self) -> int:
        """Bytes of all held slots."""
        return sum(plane.held_bytes for plane in self.planes.values())

    def reserve(self, claims: Sequence[Claim]) -> list[Runs]:
        """Take the slots of every claim, or raise CacheFullError and take none."""
        wanted = sum(claim.size * self.planes[claim.plane].spec.row_bytes for claim in claims)
        if self.budget_bytes is not None:
            self.prefixes.evict(self.held_bytes + wanted - self.budget_bytes)
        held = self.held_bytes
        if self.budget_bytes is not None and held + wanted > self.budget_bytes:
            raise CacheFullError(
                f"KV budget: this turn needs {wanted:,} bytes, {self.budget_bytes - held:,} of {self.budget_bytes:,} "
                "are free; close or crop a session, lower max_new_tokens, or raise the budget (kv_budget)",
                needed_bytes=wanted,
            )
        granted: list[Runs] = []
        try:
            for claim in claims:
                plane = self.planes[claim.plane]
                granted.append(plane.pool.allocate(claim.size, claim.after))
                plane.materialise()
                plane.poison(granted[-1])
        except (MemoryError, RuntimeError) as error:  # torch's out-of-memory errors are RuntimeErrors
            for claim, runs in zip(claims, granted, strict=False):
                self.release(claim.plane, runs)
            for plane in self.planes.values():
                plane.drop_growth()
            raise CacheFullError(
                f"this machine has no memory left for {wanted:,} more bytes of KV cache ({error}); close or crop a "
                "session, lower max_new_tokens, or set a budget (kv_budget)"
            ) from error
        self.peak_bytes = max(self.peak_bytes, self.held_bytes)
        return granted

    def retain(self, plane: str, runs: Sequence[Run]) -> None:
        self.planes[plane].pool.retain(runs)

    def release(self, plane: str, runs: Sequence[Run]) -> None:
        self.planes[plane].pool.release(runs)

    def clear(self) -> None:
        """Let go of all memory; nothing can be reserved afterwards."""
        self.prefixes.clear()
        self.planes.clear()

    def reset_peak(self) -> None:
        self.peak_bytes = self.held_bytes

    def check_integrity(self) -> None:
        for plane in self.planes.values():
            plane.pool.check_integrity()
