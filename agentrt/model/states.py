"""What several paths make of the same tokens, layer by layer: hidden states, keys and values."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from agentrt.cache.layout import KV
from agentrt.cache.store import CacheStore
from agentrt.cache.tape import Tape, reserve
from agentrt.cache.view import View
from agentrt.model.adapters import AdapterSet
from agentrt.model.backbone import Backbone
from agentrt.model.lowrank import Site
from agentrt.step import Pass, Step, Write


class LayerStates(NamedTuple):
    """One path at one layer, a row for each token. Keys are before norm and RoPE, which hardly turn what is compared:
    RoPE keeps lengths and angles."""

    hidden: torch.Tensor
    """[rows, D], what leaves the layer."""
    base: torch.Tensor
    """[rows, 2 * Hkv * d], K and V of the layer's own weights, without the path's low-rank terms."""
    full: torch.Tensor
    """The same with them."""


Visit = Callable[[int, Mapping[str, LayerStates]], None]
"""visit(layer, states by path)"""


def visit_states(
    backbone: Backbone, adapters: AdapterSet, token_ids: Sequence[int], ends: Mapping[str, int], visit: Visit
) -> None:
    """Run each path of `ends` over tokens `[0, end)` on its own, all in one step, and show each layer as it is done."""
    backbone.compute.call(_visit, backbone, adapters, token_ids, ends, visit)


@torch.inference_mode()
def _visit(
    backbone: Backbone, adapters: AdapterSet, token_ids: Sequence[int], ends: Mapping[str, int], visit: Visit
) -> None:
    ends = dict(sorted(ends.items()))  # as a step packs its passes
    total = sum(ends.values())
    store = CacheStore([backbone.layout(adapters).kv_spec()], device=backbone.device, segment_slots=total)
    passes = []
    for path, end in ends.items():
        tape = Tape(store, KV)
        reserve(store, [(tape, end)])
        runs = tape.extend(end)
        passes.append(Pass(path, tuple(token_ids[:end]), 0, View(KV, runs), (Write(KV, 0, runs),), "full"))
    seen: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}

    def keep(name: str, layer: int) -> Callable[..., None]:
        def hook(_: Any, arguments: tuple[torch.Tensor, ...], out: torch.Tensor) -> None:
            full, base = out[0].clone(), out[0].clone()
            start = 0
            for path, end in ends.items():
                weights = adapters.weights[path].get(Site(layer, name)) if path else None
                if weights is not None:
                    rows = arguments[0][0, start : start + end].to(weights.down.dtype)
                    base[start : start + end] -= (rows @ weights.down @ weights.up).to(base.dtype)
                start += end
            seen[name] = full, base

        return hook

    def show(layer: int) -> Callable[..., None]:
        def hook(_: Any, __: Any, out: torch.Tensor) -> None:
            (full_k, base_k), (full_v, base_v) = seen["k_proj"], seen["v_proj"]
            whole = LayerStates(out[0], torch.cat([base_k, base_v], 1), torch.cat([full_k, full_v], 1))
            parts = zip(*(torch.split(each, list(ends.values())) for each in whole), strict=True)
            visit(layer, {path: LayerStates(*part) for path, part in zip(ends, parts, strict=True)})

        return hook

    hooks = []
    for index, layer in enumerate(backbone._stack.layers):
        for name in ("k_proj", "v_proj"):
            hooks.append(getattr(layer.self_attn, name).register_forward_hook(keep(name, index)))
        hooks.append(layer.register_forward_hook(show(index)))
    try:
        backbone.run(Step(tuple(passes)), store.planes, adapters)
    finally:
        for each in hooks:
            each.remove()
