"""A plain forward for checks: full tensors, ordinary masks, the stock layers; no planes, slots, views or steps.

All rows of an episode, of all paths, run through each layer together: with the tokens given, what a row attends to
in a layer depends on the layers below only. Shares the projections and the head with the engine, nothing else.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import torch
from torch import nn
from torch.nn import functional as F
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

from agentrt.cache.layout import KV
from agentrt.cache.view import View
from agentrt.model.adapters import AdapterSet
from agentrt.model.attention import NAME as ENGINE_ATTENTION
from agentrt.model.backbone import Backbone
from agentrt.model.lowrank import KEY, VALUE, Site
from agentrt.model.patches import LayerRows, Patch, choose, patched
from agentrt.step import Pass

NAME: Final = "agentrt-dense"


class Entry(NamedTuple):
    """Rows that do not start at the embeddings: before `layer` their states become those of the rows `senders`."""

    layer: int
    senders: tuple[int, ...]


@dataclass(frozen=True)
class Rows:
    """One path at consecutive positions from `start`, and whose keys and values it attends to.

    `sources[position]` is the row, counted over all `Rows` in order, whose K and V0 stand at that position; it must
    reach to the last position of these rows. The reader's own terms come from the value inputs of the rows
    `low_rank[position]`; None: keys and values have the terms of the path that wrote them, as in a full cache.
    The rows at the positions `mapped` are read through the ridge maps of `path`: keys before RoPE, and values, at the
    maps' layers. `patches` change sources in some layers. After the last layer where anyone reads these rows, what
    becomes of them does not matter.
    """

    path: str
    start: int
    token_ids: tuple[int, ...]
    sources: tuple[int, ...]
    low_rank: tuple[int, ...] | None = None
    mapped: tuple[int, ...] = ()
    patches: tuple[Patch, ...] = ()
    enters: Entry | None = None

    @property
    def end(self) -> int:
        return self.start + len(self.token_ids)


@dataclass
class _Episode:
    adapters: AdapterSet
    rows: Sequence[Rows]
    rotary: tuple[torch.Tensor, torch.Tensor]
    """RoPE's cos and sin of positions from 0 on, [1, n, d] each."""
    inputs: dict[int, torch.Tensor] = field(default_factory=dict)
    """The value projection's input by layer, [rows, D]."""
    projected: dict[int, torch.Tensor] = field(default_factory=dict)
    """What the key projection made of it, with each row's own term, [rows, Hkv * d]."""
    chosen: dict[Patch, torch.Tensor] = field(default_factory=dict)


@torch.inference_mode()
def dense_logits(backbone: Backbone, adapters: AdapterSet, rows: Sequence[Rows], wanted: Sequence[int]) -> torch.Tensor:
    """fp32 logits [len(wanted), vocab] of the rows `wanted`, counted over all `rows` in order."""
    episode = _Episode(adapters, rows, backbone.rotary(range(max(each.end for each in rows))))
    passes = tuple(Pass(each.path, each.token_ids, each.start, View(KV, ()), (), "base") for each in rows)
    places = [position for each in rows for position in range(each.start, each.end)]
    with backbone._lock, _dense_attention(backbone, episode):
        backbone._context.fill(passes, {}, adapters)
        hidden = backbone._layers(backbone._embed(passes), backbone._upload(places), episode=episode)
        logits: torch.Tensor = backbone._head(backbone._stack.norm(hidden[list(wanted)]))
    return logits.float()


def attend(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    scaling: float,
    episode: _Episode,
    sliding_window: int | None = None,
    **extra: Any,
) -> tuple[torch.Tensor, None]:
    """query [1, H, rows, d], key and value V0 [1, Hkv, rows, d] of all rows; returns [1, rows, H, d]. In fp32."""
    layer = int(module.layer_idx)  # type: ignore[arg-type]
    queries, keys, base = query[0].float(), key[0].float(), value[0].float()
    inputs = episode.inputs[layer]
    written = base.clone()
    bare = episode.projected[layer].float().view(*base.shape[1::-1], -1).transpose(0, 1).clone()
    starts = _starts(episode.rows)
    for start, each in zip(starts, episode.rows, strict=True):
        end = start + len(each.token_ids)
        written[:, start:end] += _term(episode, VALUE, each.path, layer, inputs[start:end], base.shape[0])
        bare[:, start:end] -= _term(episode, KEY, each.path, layer, inputs[start:end], base.shape[0])
    q, k, v = (rows.transpose(0, 1) for rows in (queries, keys, written))
    at = LayerRows(layer, q, k, v, scaling, sliding_window)
    outs = []
    for start, each in zip(starts, episode.rows, strict=True):
        source = torch.tensor(each.sources[: each.end], device=query.device)
        for patch in each.patches:
            if patch.choice is not None and patch.choice.layer == layer and patch not in episode.chosen:
                before = tuple(other for other in each.patches if other.rows != patch.rows)
                episode.chosen[patch] = choose(patch, source, before, at, episode.chosen)
        source = patched(source, each.patches, layer, episode.chosen)
        if each.low_rank is None:
            read, values = keys[:, source], written[:, source]
            if each.mapped and layer in episode.adapters.maps[each.path].layers:
                read, values = _translated(episode, module, each, read, values, bare[:, source])
        else:
            lows = inputs[torch.tensor(each.low_rank[: each.end], device=query.device)]
            values = base[:, source] + _term(episode, VALUE, each.path, layer, lows, base.shape[0])
            read = bare[:, source] + _term(episode, KEY, each.path, layer, lows, base.shape[0])
            read = _placed(episode, module, read) if episode.adapters.key_names else keys[:, source]
        own = queries[:, start : start + len(each.token_ids)]
        outs.append(_softmax(own, read, values, each, scaling, sliding_window))
    return torch.cat(outs, 1).transpose(0, 1)[None].to(query.dtype), None


def _translated(
    episode: _Episode, attention: nn.Module, rows: Rows, keys: torch.Tensor, values: torch.Tensor, bare: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys and values as `rows` read them, [Hkv, n, d] of positions from 0 on, those it maps through its maps.

    `bare`: the same keys before norm and RoPE, without any adapter's term.
    """
    layer, maps = int(attention.layer_idx), episode.adapters.maps[rows.path]  # type: ignore[arg-type]
    at = torch.tensor(rows.mapped, device=keys.device)
    mapped = _turned(episode, attention, _normed(attention, bare) @ maps.keys[layer])
    keys, values = keys.clone(), values.clone()
    keys[:, at], values[:, at] = mapped[:, at], values[:, at] @ maps.values[layer]
    return keys, values


def _placed(episode: _Episode, attention: nn.Module, keys: torch.Tensor) -> torch.Tensor:
    """Keys [Hkv, n, d] of positions from 0 on, after the layer's norm and RoPE, where it has them."""
    return _turned(episode, attention, _normed(attention, keys))


def _normed(attention: nn.Module, keys: torch.Tensor) -> torch.Tensor:
    norm = getattr(attention, "k_norm", None)
    normed: torch.Tensor = keys if norm is None else norm(keys)
    return normed


def _turned(episode: _Episode, attention: nn.Module, keys: torch.Tensor) -> torch.Tensor:
    cos, sin = (each[:, : keys.shape[1]] for each in episode.rotary)
    if getattr(attention, "use_rope", True):
        (keys,) = apply_rotary_pos_emb(keys[None], keys[None], cos, sin)[0]
    return keys


def _term(episode: _Episode, projection: str, path: str, layer: int, inputs: torch.Tensor, heads: int) -> torch.Tensor:
    """The term of `path` on keys or values for inputs [n, D]: [Hkv, n, d], zero where it has none."""
    weights = episode.adapters.weights[path].get(Site(layer, projection)) if path else None
    if weights is None:
        return torch.zeros((), device=inputs.device)
    term = inputs.float() @ weights.down.float() @ weights.up.float()
    return term.view(len(inputs), heads, -1).transpose(0, 1)


def _softmax(
    queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, rows: Rows, scaling: float, window: int | None
) -> torch.Tensor:
    groups = queries.shape[0] // keys.shape[0]
    own = torch.arange(rows.start, rows.end, device=queries.device)
    behind = own[:, None] - torch.arange(rows.end, device=queries.device)
    seen = (behind >= 0) & (behind < (window or rows.end))
    keys, values = keys.repeat_interleave(groups, 0), values.repeat_interleave(groups, 0)
    return F.scaled_dot_product_attention(queries, keys, values, attn_mask=seen, scale=scaling)


def _entered(hidden: torch.Tensor, rows: Sequence[Rows], layer: int) -> torch.Tensor:
    """hidden [1, rows, D] before a layer, with the states of those that enter there."""
    entered = hidden.clone()
    for start, each in zip(_starts(rows), rows, strict=True):
        if each.enters is not None and each.enters.layer == layer:
            entered[0, start : start + len(each.token_ids)] = hidden[0, list(each.enters.senders)]
    return entered


def _starts(rows: Sequence[Rows]) -> list[int]:
    starts, total = [], 0
    for each in rows:
        starts.append(total)
        total += len(each.token_ids)
    return starts


@contextmanager
def _dense_attention(backbone: Backbone, episode: _Episode) -> Iterator[None]:
    """The backbone with this file's attention, its value inputs and keys recorded; as it was before, afterwards."""
    AttentionInterface.register(NAME, attend)
    AttentionMaskInterface.register(NAME, _no_mask)
    hooks = []
    for index, layer in enumerate(backbone._stack.layers):

        def keep(_: nn.Module, arguments: tuple[torch.Tensor, ...], at: int = index) -> None:
            episode.inputs[at] = arguments[0][0]

        def enter(_: nn.Module, arguments: tuple[torch.Tensor, ...], at: int = index) -> tuple[torch.Tensor, ...]:
            return (_entered(arguments[0], episode.rows, at), *arguments[1:])

        def project(_: nn.Module, __: tuple[torch.Tensor, ...], made: torch.Tensor, at: int = index) -> None:
            episode.projected[at] = made[0]

        hooks.append(layer.self_attn.v_proj.register_forward_pre_hook(keep))
        hooks.append(layer.self_attn.k_proj.register_forward_hook(project))
        if any(each.enters is not None and each.enters.layer == index for each in episode.rows):
            hooks.append(layer.register_forward_pre_hook(enter))
    backbone.model.set_attn_implementation(NAME)
    try:
        yield
    finally:
        backbone.model.set_attn_implementation(ENGINE_ATTENTION)
        for hook in hooks:
            hook.remove()


def _no_mask(*_: Any, **__: Any) -> None:
    return None
