"""What a backbone is without its weights: sizes, and the projections that take adapters. Needs its config only."""

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self

import torch
from torch import nn
from transformers import AutoModelForCausalLM

from agentrt.cache.layout import Layout
from agentrt.config.backbones import can_be_fetched
from agentrt.errors import BackboneError
from agentrt.model.adapters import AdapterSet
from agentrt.model.fetch import locate
from agentrt.model.load import read_config
from agentrt.model.lowrank import ATTENTION, MLP, Site
from agentrt.model.peft_folder import ProjectionShape


class ModelShape(NamedTuple):
    """Sizes of the cached model."""

    num_layers: int
    num_kv_heads: int
    head_dim: int
    hidden_size: int

    @classmethod
    def of(cls, config: Any) -> Self:
        """Read off a transformers config."""
        return cls(
            num_layers=int(config.num_hidden_layers),
            num_kv_heads=int(config.num_key_value_heads),
            head_dim=int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads),
            hidden_size=int(config.hidden_size),
        )

    def layout(self, adapters: AdapterSet, dtype: torch.dtype, lr_dtype: torch.dtype | None = None) -> Layout:
        """What schemes need to declare planes; `lr_dtype` None = the model's own."""
        return Layout(
            num_layers=self.num_layers,
            num_kv_heads=self.num_kv_heads,
            head_dim=self.head_dim,
            dtype=dtype,
            lr_dtype=lr_dtype or dtype,
            ranks=adapters.ranks,
            key_ranks=adapters.key_ranks,
            shared_a=adapters.shared_a,
            hidden_size=self.hidden_size,
            invocations=adapters.invocations,
        )


class StoredBackbone(NamedTuple):
    """A backbone as its folder describes it. `names`: what an adapter may call it, the public name first."""

    names: tuple[str, ...]
    folder: Path
    shape: ModelShape
    projections: Mapping[Site, ProjectionShape]


def find_backbone(name: str) -> StoredBackbone | None:
    """A backbone that is on this machine, None for one that must be fetched or converted first; reads no weight.

    Raises BackboneError for a name that is no model's, a damaged config, or a family that is not supported.
    """
    if Path(name).suffix == ".gguf" and Path(name).expanduser().is_file():
        return None
    try:
        located = locate(name, offline=True)
    except BackboneError:
        if can_be_fetched(name):
            return None
        raise
    config = read_config(located.folder)
    shape = ModelShape.of(config)
    first_layer = copy.copy(config)
    first_layer.num_hidden_layers = 1  # layers of a supported family are alike, and building them all takes a while
    build: Any = AutoModelForCausalLM.from_config  # untyped in transformers
    with torch.device("meta"):
        widths = projection_shapes(build(first_layer).get_decoder())
    projections = {
        Site(layer, site.projection): each for layer in range(shape.num_layers) for site, each in widths.items()
    }
    return StoredBackbone(located.names, located.folder, shape, projections)


def projection_shapes(decoder: nn.Module) -> dict[Site, ProjectionShape]:
    """Widths of every projection that may have an adapter."""
    shapes = {}
    layers: Any = decoder.layers
    for index, layer in enumerate(layers):
        for parent, names in ((layer.self_attn, ATTENTION), (layer.mlp, MLP)):
            for name in names:
                base = getattr(parent, name)
                shapes[Site(index, name)] = ProjectionShape(base.in_features, base.out_features)
    return shapes
