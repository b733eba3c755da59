"""AdapterSet: the low-rank weights of every role, ready for packed steps."""

import copy
import hashlib
from collections.abc import Collection, Mapping
from pathlib import Path

import torch

from agentrt.errors import AdapterError
from agentrt.model.lowrank import KEY, VALUE, LowRank, Site, column_rank, pad_rank
from agentrt.model.peft_folder import AdapterFile, ProjectionShape, read_adapter
from agentrt.model.ridge import RidgeMap


class AdapterSet:
    """Adapters by name, of one backbone. Immutable after construction.

    `weights[name]` maps sites to low-rank maps; a missing site is the zero map. Raises AdapterError where an
    adapter cannot be served exactly.
    """

    def __init__(
        self,
        weights: Mapping[str, Mapping[Site, LowRank]],
        hashes: Mapping[str, str],
        invocations: Mapping[str, tuple[int, ...]] | None = None,
    ) -> None:
        if "" in weights:
            raise AdapterError("an adapter has an empty name; the empty name means adapters off")
        self.names = tuple(weights)
        self.weights = weights
        self.hashes = dict(hashes)
        self.invocations = dict(invocations or {})
        """The tokens that activate an adapter, of those that are activated LoRA."""
        self.maps: Mapping[str, RidgeMap] = {}
        """How slots are translated for an adapter, where that was fitted."""
        self.ranks = {name: column_rank(sites, VALUE) for name, sites in weights.items()}
        self.key_ranks = {name: column_rank(sites, KEY) for name, sites in weights.items()}
        self.value_names = tuple(name for name, rank in self.ranks.items() if rank)
        """Adapters with a value term, in the order of `value_downs`."""
        self.key_names = tuple(name for name, rank in self.key_ranks.items() if rank)
        """Adapters with a key term, in the order of `key_downs`."""
        self._downs: dict[Site, torch.Tensor] = {}
        self._value_ups: dict[tuple[str, int], torch.Tensor] = {}

    @classmethod
    def load(
        cls,
        folders: Mapping[str, str | Path],
        shapes: Mapping[Site, ProjectionShape],
        *,
        base_names: Collection[str],
        dtype: torch.dtype,
        device: torch.device | str = "cpu",
    ) -> "AdapterSet":
        """Read peft folders; `shapes` and `base_names` describe the backbone."""
        return cls.of(
            {
                name: read_adapter(name, Path(folder), shapes, base_names=base_names, dtype=dtype, device=device)
                for name, folder in folders.items()
            }
        )

    @classmethod
    def of(cls, files: Mapping[str, AdapterFile]) -> "AdapterSet":
        """Adapters that are read already."""
        return cls(
            {name: file.weights for name, file in files.items()},
            {name: file.content_hash for name, file in files.items()},
            {name: file.invocation for name, file in files.items() if file.invocation},
        )

    def with_maps(self, maps: Mapping[str, RidgeMap]) -> "AdapterSet":
        """The same adapters, with maps by name."""
        twin = copy.copy(self)
        twin.maps = dict(maps)
        return twin

    @property
    def content_hash(self) -> str:
        """Identity of the whole set, names included: they decide which column is whose."""
        parts = (f"{name}={self.hashes[name]}" for name in sorted(self.names))
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    @property
    def shared_a(self) -> bool:
        """Whether all adapters have equal A on every v_proj and k_proj."""
        first, *rest = (self._column_downs(name) for name in self.names) if self.names else ({},)
        return all(
            other.keys() == first.keys() and all(torch.equal(other[site], first[site]) for site in first)
            for other in rest
        )

    def value_down(self, adapter: str, layer: int) -> torch.Tensor:
        """A of a layer's v_proj, [d_in, rank], zeros where missing: a slice of `value_downs`."""
        return _slice_of(self.value_downs(layer), adapter, self.value_names, self.ranks)

    def key_down(self, adapter: str, layer: int) -> torch.Tensor:
        """A of a layer's k_proj, as `value_down`."""
        return _slice_of(self.key_downs(layer), adapter, self.key_names, self.key_ranks)

    def value_downs(self, layer: int) -> torch.Tensor:
        """[A | A | …] of a layer's v_proj over `value_names`, [d_in, sum of ranks]."""
        return self._joined(Site(layer, VALUE), self.value_names, self.ranks)

    def key_downs(self, layer: int) -> torch.Tensor:
        """[A | A | …] of a layer's k_proj over `key_names`."""
        return self._joined(Site(layer, KEY), self.key_names, self.key_ranks)

    def value_up(self, adapter: str, layer: int, kv_heads: int) -> torch.Tensor:
        """scaling * B of a layer's v_proj, [rank, kv_heads, head_dim]."""
        cached = self._value_ups.get((adapter, layer))
        if cached is None:
            up = self._padded(adapter, Site(layer, VALUE), self.ranks[adapter]).up
            cached = self._value_ups[adapter, layer] = up.view(up.shape[0], kv_heads, -1)
        return cached

    def _joined(self, site: Site, names: tuple[str, ...], ranks: Mapping[str, int]) -> torch.Tensor:
        cached = self._downs.get(site)
        if cached is None:
            parts = [self._padded(name, site, ranks[name]).down for name in names]
            cached = self._downs[site] = torch.cat(parts, 1).contiguous()
        return cached

    def _padded(self, adapter: str, site: Site, rank: int) -> LowRank:
        sites = self.weights[adapter]
        like = next(weights for each, weights in sites.items() if each.projection == site.projection)
        return pad_rank(sites.get(site), rank, like)

    def _column_downs(self, adapter: str) -> dict[Site, torch.Tensor]:
        sites = self.weights[adapter].items()
        return {site: weights.down for site, weights in sites if site.projection in (VALUE, KEY)}


def _slice_of(joined: torch.Tensor, adapter: str, names: tuple[str, ...], ranks: Mapping[str, int]) -> torch.Tensor:
    start = sum(ranks[name] for name in names[: names.index(adapter)])
    return joined[:, start : start + ranks[adapter]]
