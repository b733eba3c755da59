"""Preambles kept from session to session: slots by the hash of what computed them. Knows no agents and no model.

An entry's identity is its content, H(parent, tokens, processing path, low-rank columns) from hashes of base weights,
adapters and scheme: a name is never a key, so other weights under an old name find nothing.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from agentrt.cache.plane import Plane, PlaneSpec
from agentrt.cache.slots import Runs


@dataclass(frozen=True)
class Identity:
    """What every slot of one store was computed with: content hashes of the base weights and of each adapter, and the
    scheme with its options."""

    base: str
    adapters: Mapping[str, str]
    scheme: str

    @cached_property
    def root(self) -> str:
        """The chain's start: any change of weights, of the set or of the scheme changes every key."""
        return _digest("root", self.base, self.scheme, *sorted(self.adapters.values()))

    def link(self, parent: str, token_ids: Sequence[int], path: str, planes: Iterable[PlaneSpec]) -> str:
        """The key of slots in `planes` that `path` (empty: adapters off) computed over `token_ids`, reading what
        `parent` names."""
        by = self.adapters[path] if path else "neutral"
        stored = [f"{plane.name}={self.adapters[plane.column] if plane.column else ''}" for plane in planes]
        return _digest(parent, by, ",".join(map(str, token_ids)), *stored)


class PrefixUse(NamedTuple):
    """How often turns of `adapter` found a preamble that `path` had computed, or had to compute it themselves."""

    adapter: str
    path: str
    hits: int
    misses: int
    reused_tokens: int


class PreamblePending(Exception):  # noqa: N818 - a signal within the engine, which no caller sees
    """Another session is computing this preamble: ask again when it is done."""


Parts = tuple[tuple[str, Runs], ...]
"""Slots by plane, all over the same positions from 0 on."""


class PrefixCache:
    """Entries by key, the least recently used first. Not thread-safe: the engine guards it.

    An entry holds one reference to each slot. A key is claimed by whoever computes it until it is added or given up.
    """

    def __init__(self, planes: Mapping[str, Plane], max_entries: int) -> None:
        self._planes = planes
        self._max_entries = max_entries
        self._entries: dict[str, Parts] = {}
        self._claimed: set[str] = set()
        self._uses: dict[tuple[str, str], PrefixUse] = {}

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def enabled(self) -> bool:
        """Whether it keeps anything at all; else nobody need claim a key."""
        return self._max_entries > 0

    @property
    def uses(self) -> tuple[PrefixUse, ...]:
        return tuple(self._uses.values())

    def find(self, key: str) -> Parts | None:
        """The entry's slots, which counts as a use; None where there is none, and then the key is the caller's.

        Raises PreamblePending where somebody else has claimed it.
        """
        if key in self._claimed:
            raise PreamblePending
        if key in self._entries:
            self._entries[key] = self._entries.pop(key)
            return self._entries[key]
        self._claimed.add(key)
        return None

    def add(self, key: str, parts: Parts) -> None:
        """Keep slots that whoever claimed `key` has computed; the oldest entry leaves where there are too many."""
        self._claimed.remove(key)
        while len(self._entries) >= self._max_entries:
            self._drop(next(iter(self._entries)))
        for plane, runs in parts:
            self._planes[plane].pool.retain(runs)
        self._entries[key] = parts

    def give_up(self, key: str) -> None:
        """The claimed key was not computed."""
        self._claimed.remove(key)

    def count(self, adapter: str, path: str, reused_tokens: int) -> None:
        """Note a hit, or (no token reused) a miss."""
        use = self._uses.get((adapter, path), PrefixUse(adapter, path, 0, 0, 0))
        self._uses[adapter, path] = use._replace(
            hits=use.hits + (reused_tokens > 0),
            misses=use.misses + (reused_tokens == 0),
            reused_tokens=use.reused_tokens + reused_tokens,
        )

    def evict(self, num_bytes: int) -> None:
        """Free at least so many bytes by dropping entries, least recently used first; or, if that cannot be, none.

        An entry whose slots live sessions hold too would free nothing and stays.
        """
        if num_bytes <= 0:
            return
        gains = {key: self._gain(parts) for key, parts in self._entries.items()}
        if sum(gains.values()) < num_bytes:
            return
        for key, gain in gains.items():
            if num_bytes <= 0:
                break
            if gain:
                self._drop(key)
                num_bytes -= gain

    def clear(self) -> None:
        for key in list(self._entries):
            self._drop(key)

    def _drop(self, key: str) -> None:
        for plane, runs in self._entries.pop(key):
            self._planes[plane].pool.release(runs)

    def _gain(self, parts: Parts) -> int:
        """Bytes of slots that only the entry holds."""
        return sum(
            self._planes[plane].pool.num_sole(runs) * self._planes[plane].spec.row_bytes for plane, runs in parts
        )


def _digest(*words: str) -> str:
    return hashlib.sha256(json.dumps(words).encode()).hexdigest()
