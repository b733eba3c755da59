"""Counters of what tools did in an episode; nothing that failed goes uncounted."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from agentrt_tools.base import Json


@dataclass(frozen=True)
class ToolHealth:
    """Calls asked for, misses told to the model, attempts beyond the first, and failed calls by kind."""

    calls: int = 0
    misses: int = 0
    retries: int = 0
    failures: Mapping[str, int] = field(default_factory=dict)

    @property
    def failed(self) -> int:
        """Calls that failed, of any kind."""
        return sum(self.failures.values())

    @property
    def locked_out(self) -> int:
        """Calls that failed for want of a valid key or of credits, and will fail again."""
        return self.failures.get("auth", 0) + self.failures.get("quota", 0)

    def __add__(self, other: "ToolHealth") -> "ToolHealth":
        kinds = sorted({*self.failures, *other.failures})
        return ToolHealth(
            self.calls + other.calls,
            self.misses + other.misses,
            self.retries + other.retries,
            {kind: self.failures.get(kind, 0) + other.failures.get(kind, 0) for kind in kinds},
        )

    def to_json(self) -> dict[str, Json]:
        """The counters as plain JSON."""
        return {
            "calls": self.calls,
            "misses": self.misses,
            "retries": self.retries,
            "failures": dict(self.failures),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Json]) -> Self:
        """What `to_json` gave. Raises ValueError for anything else."""
        match dict(value):
            case {"calls": int(calls), "misses": int(misses), "retries": int(retries), "failures": dict(failures)}:
                counts = {kind: number for kind, number in failures.items() if isinstance(number, int)}
                if counts == failures:
                    return cls(calls, misses, retries, counts)
        raise ValueError(f"not the counters of tool health: {value!r}")
