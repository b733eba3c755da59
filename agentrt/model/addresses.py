"""Where the planes of an engine lie, and its adapters' values, as the kernels read them: made when either changes."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple
from weakref import ReferenceType, ref

import torch

from agentrt.cache.plane import Plane
from agentrt.model.adapters import AdapterSet
from agentrt_kernels.lora_attention.addresses import Addresses
from agentrt_kernels.lora_attention.packed import Cache
from agentrt_kernels.tables import addresses

COLUMNS: Final = ("lr", "lrk")
"""Kinds of low-rank rows: of values, and of keys."""

Places = Mapping[int, int]
"""A segment (by id) to its index among those of a table."""


class Columns(NamedTuple):
    """Low-rank rows of one kind."""

    where: torch.Tensor
    """[layers, n, 2]: address, and row stride in elements."""
    dtype: torch.dtype
    shapes: tuple[tuple[int, int], ...]
    """Of each segment: slots, rank."""
    places: Places


class Known(NamedTuple):
    """What stays as it is while neither planes nor adapters change. Holds tensors, but no plane."""

    num_segments: int
    adapters: ReferenceType[AdapterSet]
    addresses: Addresses
    writes: torch.Tensor
    """[layers, n, 2]: where keys and values of the segments are written, 0 where a segment has none."""
    base_writes: torch.Tensor
    """Likewise base keys, and 0."""
    places: Places
    columns: Mapping[str, Columns]

    def holds(self, planes: Mapping[str, Plane], adapters: AdapterSet) -> bool:
        """Whether it still is as these planes and adapters are."""
        return self.num_segments == _count(planes) and self.adapters() is adapters


def terms_in(
    kind: str, adapters: AdapterSet
) -> tuple[tuple[str, ...], Mapping[str, int], Callable[[int], torch.Tensor]]:
    """Whose terms have columns of this kind, their ranks, and [A | A | ...] of a layer."""
    if kind == "lr":
        return adapters.value_names, adapters.ranks, adapters.value_downs
    return adapters.key_names, adapters.key_ranks, adapters.key_downs


def look_at(planes: Mapping[str, Plane], adapters: AdapterSet) -> Known:
    """The addresses of these planes' segments as they are now."""
    device = next(iter(planes.values())).device
    layers = range(next(plane.spec.num_layers for plane in planes.values() if plane.spec.only is None))
    rows = [(p, segment) for p in planes.values() if p.spec.has("k") or p.spec.has("v") for segment in p.segments]
    columns = {}
    for kind in COLUMNS:
        low = [segment for plane in planes.values() if plane.spec.has(kind) for segment in plane.segments]
        if low:
            pairs = [[(s[kind][layer].data_ptr(), s[kind].stride(1)) for s in low] for layer in layers]
            shapes = tuple((s[kind].shape[1], s[kind].shape[2]) for s in low)
            columns[kind] = Columns(addresses(pairs, device), low[0][kind].dtype, shapes, _numbers(low))

    def part_of(layer: int, part: str, instead: str) -> list[torch.Tensor]:
        """Of a segment without the part another of its tensors stands in: no table names it."""
        return [_layer_of(plane, each, part if part in each else instead, layer) for plane, each in rows]

    def written(part: str, layer: int) -> list[int]:
        return [_layer_of(plane, each, part, layer).data_ptr() if part in each else 0 for plane, each in rows]

    keys = [part_of(layer, "k", "v") for layer in layers]
    kv_heads = keys[0][0].shape[1]
    valued = [segment["lr"] for plane in planes.values() if plane.spec.has("lr") for segment in plane.segments]
    caches = [
        Cache(
            keys[layer],
            part_of(layer, "v", "k"),
            [segment[layer] for segment in valued],
            [adapters.value_up(name, layer, kv_heads) for name in adapters.value_names] if valued else [],
        )
        for layer in layers
    ]
    return Known(
        _count(planes),
        ref(adapters),
        Addresses.of(caches),
        addresses([list(zip(written("k", layer), written("v", layer), strict=True)) for layer in layers], device),
        addresses([[(base, 0) for base in written("k0", layer)] for layer in layers], device),
        _numbers([segment for _, segment in rows]),
        columns,
    )


def _count(planes: Mapping[str, Plane]) -> int:
    return sum(len(plane.segments) for plane in planes.values())


def _layer_of(plane: Plane, segment: Mapping[str, torch.Tensor], part: str, layer: int) -> torch.Tensor:
    """Of a layer that the plane does not cover: another layer's rows, so that layers are alike. No table names them."""
    layers = plane.spec.layers
    return segment[part][layers.index(layer) if layer in layers else 0]


def _numbers(segments: Sequence[Mapping[str, torch.Tensor]]) -> dict[int, int]:
    return {id(segment): index for index, segment in enumerate(segments)}
