"""Fits ridge maps on sample contexts: what an adapter makes of keys and values, as a linear map of the neutral ones."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import torch

from agentrt.cache.layout import KV
from agentrt.cache.store import CacheStore
from agentrt.cache.tape import Tape, reserve
from agentrt.cache.view import View
from agentrt.errors import UsageError
from agentrt.model.adapters import AdapterSet
from agentrt.model.backbone import Backbone
from agentrt.model.ridge import RidgeMap, save_maps, unrotate
from agentrt.step import Pass, Step, Write
from agentrt.trajectory import NEUTRAL

PENALTY: Final = 10.0  # routekv, lambda


class _Sums:
    """Sums over samples of x'x, x'y and y'y, per head, in fp64."""

    def __init__(self, heads: int, width: int) -> None:
        self.xx = torch.zeros(heads, width, width, dtype=torch.float64)
        self.xy = torch.zeros_like(self.xx)
        self.yy = 0.0

    def add(self, x: torch.Tensor, y: torch.Tensor) -> None:
        x, y = x.double(), y.double()  # [n, heads, d]
        self.xx += torch.einsum("nhd,nhe->hde", x, x)
        self.xy += torch.einsum("nhd,nhe->hde", x, y)
        self.yy += float(y.square().sum())

    def solve(self, penalty: float) -> torch.Tensor:
        """[heads, d, d]: the map that minimises the squared error plus `penalty` times its own squares."""
        eye = torch.eye(self.xx.shape[-1], dtype=torch.float64)
        solved: torch.Tensor = torch.linalg.solve(self.xx + penalty * eye, self.xy)
        return solved

    def error(self, solved: torch.Tensor) -> float:
        """Squared error over the samples, relative to what is predicted."""
        fitted = (solved * (self.xx @ solved)).sum() - 2 * (solved * self.xy).sum()
        return (self.yy + float(fitted)) / self.yy

    def gain(self, solved: torch.Tensor) -> float:
        eye = torch.eye(self.xx.shape[-1], dtype=torch.float64).expand_as(self.xx)
        return self.error(eye) - self.error(solved)


class Fit(NamedTuple):
    """Maps by adapter name, and on how many tokens they were fitted."""

    maps: dict[str, RidgeMap]
    num_tokens: int


def fit_ridge(
    backbone: Backbone, adapters: AdapterSet, contexts: Sequence[Sequence[int]], *, penalty: float = PENALTY
) -> Fit:
    """Fit every adapter's maps on `contexts`, each run once with adapters off and once with the adapter.

    Keys are compared before RoPE, per head, without an intercept; the gains that rank layers add up the relative
    errors of keys and of values. Raises UsageError for no contexts.
    """
    if not contexts or not all(contexts):
        raise UsageError("ridge: give sample contexts of at least one token each to fit maps on")
    return backbone.compute.call(_fit, backbone, adapters, contexts, penalty)


def write_ridge(file: Path, fit: Fit, backbone: Backbone, adapters: AdapterSet) -> None:
    """Store the maps for exactly this backbone and these adapters."""
    maps = {adapters.hashes[name]: each for name, each in fit.maps.items()}
    save_maps(file, maps, backbone_hash=backbone.content_hash)


@torch.inference_mode()
def _fit(backbone: Backbone, adapters: AdapterSet, contexts: Sequence[Sequence[int]], penalty: float) -> Fit:
    heads, width = backbone.num_kv_heads, backbone.head_dim
    sums = {
        (name, part, layer): _Sums(heads, width)
        for name in adapters.names
        for part in ("k", "v")
        for layer in range(backbone.num_layers)
    }
    for context in contexts:
        neutral = dict(_rows(backbone, adapters, NEUTRAL, context))
        for name in adapters.names:
            for key, rows in _rows(backbone, adapters, name, context):
                sums[name, *key].add(neutral[key], rows)
    maps = {}
    for name in adapters.names:
        solved, gains = {}, torch.zeros(backbone.num_layers)
        for part in ("k", "v"):
            of_layers = [sums[name, part, layer] for layer in range(backbone.num_layers)]
            found = [each.solve(penalty) for each in of_layers]
            gains += torch.tensor([each.gain(w) for each, w in zip(of_layers, found, strict=True)])
            solved[part] = torch.stack(found).float().to(backbone.device)
        maps[name] = RidgeMap(solved["k"], solved["v"], gains, frozenset(range(backbone.num_layers)))
    return Fit(maps, sum(map(len, contexts)))


def _rows(
    backbone: Backbone, adapters: AdapterSet, path: str, context: Sequence[int]
) -> Iterator[tuple[tuple[str, int], torch.Tensor]]:
    """Keys before RoPE and values of `path` over `context`, in full: ("k" or "v", layer), [n, heads, d] on the CPU."""
    store = CacheStore([backbone.layout(adapters).kv_spec()], device=backbone.device, segment_slots=len(context))
    tape = Tape(store, KV)
    reserve(store, [(tape, len(context))])
    runs = tape.extend(len(context))
    one = Pass(path, tuple(context), 0, View(KV, runs), (Write(KV, 0, runs),), "full")
    backbone.run(Step((one,)), store.planes, adapters)
    cos, sin = backbone.rotary(range(len(context)))
    for layer in range(backbone.num_layers):
        for part in ("k", "v"):
            rows = torch.cat([store.planes[KV].locate(run).read(part, layer) for run in runs]).float()
            if part == "k" and backbone.rotates(layer):
                rows = unrotate(rows, cos[0][:, None], sin[0][:, None])
            yield (part, layer), rows.cpu()
