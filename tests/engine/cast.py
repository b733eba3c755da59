"""A scheme as a test names it, with a tiny model and adapters that suit it, and its dense definition.

`SCHEME/qkvo`: over a model with k_norm, with adapters on the key projection too. `SCHEME/zero`: adapters whose B is 0.
"""

import copy
import functools
from typing import Any, NamedTuple

from agentrt.model.backbone import Backbone
from tests.models import AGENTS, make, scratch
from tests.reference.dense import DenseModel, dense_model
from tests.reference.full import Reference
from tests.reference.registry import REFERENCES
from tests.reference.routekv import Alora, Ridge
from tests.schemes.test_alora import INVOCATIONS, make_activated
from tests.schemes.test_ridge import random_maps, translator

QKVO = "/qkvo"
ZERO = "/zero"
ALL_TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj")


class Cast(NamedTuple):
    """`scheme`: what `make_scheme` takes; `invocations`: of activated adapters. Nothing of it is to be changed."""

    scheme: str
    model: Any
    folders: dict[str, Any]
    invocations: dict[str, tuple[int, ...]]

    @property
    def dense(self) -> DenseModel:
        return dense_model(self.model, self.folders)

    def definition(self, preamble) -> Reference:
        """A new trajectory under the scheme's definition."""
        if self.invocations:
            return Alora(self.dense, AGENTS, preamble, invocations=self.invocations)
        if self.scheme.startswith("ridge"):
            return Ridge(self.dense, AGENTS, preamble, translate=translator(self.dense.model, ridge_maps()[1]))
        return REFERENCES[self.scheme](self.dense, AGENTS, preamble)


def cast(variant, family="llama", targets=("q_proj", "v_proj")) -> Cast:
    scheme = variant.removesuffix(QKVO).removesuffix(ZERO)
    if scheme.startswith("alora"):
        model, folders = make_activated()
        return Cast(scheme, model, folders, INVOCATIONS)
    if variant.endswith(QKVO):
        family, targets = "qwen3", ALL_TARGETS
    zero = {"zero_b": True} if variant.endswith(ZERO) else {}
    model, folders = make(family, targets=targets, shared_a=scheme.startswith("base_lr_shared"), **zero)
    return Cast(scheme if scheme != "ridge" else f"ridge:{ridge_maps()[0]}", model, folders, {})


@functools.cache
def ridge_maps():
    """A file of maps for the plain adapters, and the maps by name: not to be changed."""
    model, folders = make()
    folder = scratch() / "ridge"
    folder.mkdir()
    return random_maps(folder, model, folders)


def engine_parts(played: Cast, kind=Backbone):
    """The backbone, of class `kind`, and its adapters."""
    backbone = kind(copy.deepcopy(played.model))
    return backbone, backbone.load_adapters(played.folders)
