"""Ridge maps: per head, from the model's keys (before RoPE) and values with adapters off to those of one adapter."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn

from agentrt.cache.plane import Plane, Stretch
from agentrt.errors import SchemeError
from agentrt.step import Map, Pass


class RidgeMap(NamedTuple):
    """The maps of one adapter. They apply at `layers`; at the others rows are copied."""

    keys: torch.Tensor  # [layers, kv_heads, d, d]
    values: torch.Tensor  # [layers, kv_heads, d, d]
    gains: torch.Tensor  # [layers]: how much of the error on the samples the map takes away
    layers: frozenset[int]

    def top(self, count: int | None) -> "RidgeMap":
        """The same maps, applied at the `count` layers that gain most; None = all."""
        order = self.gains.argsort(descending=True).tolist()
        return self._replace(layers=frozenset(order[:count]))


def save_maps(file: Path, maps: Mapping[str, RidgeMap], *, backbone_hash: str) -> None:
    """Write maps by adapter hash; the file says which backbone they belong to."""
    tensors = {
        f"{adapter_hash}.{part}": getattr(each, part).contiguous()
        for adapter_hash, each in maps.items()
        for part in ("keys", "values", "gains")
    }
    save_file(tensors, file, metadata={"agentrt": json.dumps({"kind": "ridge", "backbone": backbone_hash})})


def load_maps(
    file: str | Path, hashes: Mapping[str, str], *, backbone_hash: str, device: torch.device
) -> dict[str, RidgeMap]:
    """Maps by adapter name; `hashes` are the adapters' content hashes.

    Raises SchemeError for a file that cannot be read, or was fitted for another backbone or another adapter.
    """
    try:
        with safe_open(file, "pt", device=str(device)) as opened:
            stored: Any = json.loads((opened.metadata() or {})["agentrt"])
            tensors = {key: opened.get_tensor(key) for key in opened.keys()}  # noqa: SIM118 - no mapping
    except Exception as error:  # safetensors raises a bare Exception subclass of its own
        raise SchemeError(
            f"ridge: {file} is no file of ridge maps ({error}); fit them with agentrt profile --ridge"
        ) from None
    if stored.get("kind") != "ridge" or stored.get("backbone") != backbone_hash:
        raise SchemeError(f"ridge: the maps in {file} were fitted for another backbone; fit them for this one")
    maps = {}
    for name, adapter_hash in hashes.items():
        try:
            keys, values, gains = (tensors[f"{adapter_hash}.{part}"] for part in ("keys", "values", "gains"))
        except KeyError:
            raise SchemeError(
                f"ridge: {file} has no maps for adapter {name!r} as it is now; fit them again for these adapters"
            ) from None
        maps[name] = RidgeMap(keys, values, gains, frozenset(range(len(gains))))
    return maps


class Translation(NamedTuple):
    """One `Map` of a step, located."""

    sources: tuple[Stretch, ...]
    targets: tuple[Stretch, ...]
    cos: torch.Tensor  # [n, 1, d], as sin
    sin: torch.Tensor
    how: RidgeMap

    def run(self, layer: int, attention: nn.Module) -> None:
        """Fill the target rows of one layer, whose module this is."""
        rope = rotates(attention)
        keys, values = (torch.cat([each.read(part, layer) for each in self.sources]) for part in ("k", "v"))
        if layer in self.how.layers:
            dtype = keys.dtype
            bare = unrotate(keys.float(), self.cos, self.sin) if rope else keys.float()
            bare = torch.einsum("nhd,hde->nhe", bare, self.how.keys[layer])
            keys = (rotate(bare, self.cos, self.sin) if rope else bare).to(dtype)
            values = torch.einsum("nhd,hde->nhe", values.float(), self.how.values[layer]).to(dtype)
        start = 0
        for each in self.targets:
            rows = each.read("k", layer)
            end = start + len(rows)
            rows.copy_(keys[start:end])
            each.read("v", layer).copy_(values[start:end])
            start = end


def locate(
    passes: Sequence[Pass], planes: Mapping[str, Plane], maps: Mapping[str, RidgeMap], rotary: Any
) -> list[Translation]:
    """Every map of a step's passes. `rotary(positions)` gives fp32 cos and sin, [1, n, d]."""

    def place(each: Map) -> Translation:
        plane = planes[each.plane]
        cos, sin = rotary(range(each.start, each.end))
        sources, targets = (tuple(plane.locate(run) for run in runs) for runs in (each.source, each.target))
        return Translation(sources, targets, cos[0][:, None], sin[0][:, None], maps[each.how])

    return [place(each) for one in passes for each in one.maps]


def rotates(attention: nn.Module) -> bool:
    """Whether a layer's keys have RoPE."""
    return bool(getattr(attention, "use_rope", True))


def rotate(rows: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """RoPE by halves, as every supported family has it; rows [n, heads, d], cos and sin [n, 1, d]."""
    return rows * cos + _half(rows) * sin


def unrotate(rows: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """The inverse of `rotate`, whatever cos and sin are scaled by."""
    return (rows * cos - _half(rows) * sin) / (cos * cos + sin * sin)


def _half(rows: torch.Tensor) -> torch.Tensor:
    first, second = rows.chunk(2, -1)
    return torch.cat([-second, first], -1)
