"""The shipped team on a tiny random model, short enough for tests."""

import copy
import functools
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel

from agentrt.builtin import configs_dir
from agentrt.config.team import Override, Team
from agentrt.engine import Engine, EngineConfig
from agentrt.model.adapters import AdapterSet
from agentrt.model.backbone import Backbone
from agentrt.model.ridge import RidgeMap, save_maps
from agentrt.model.tiny import tiny_adapter, tiny_model
from agentrt.schemes.make import make_scheme
from agentrt.testing import ByteTokenizer
from tests.models import scratch, share_a

CORPUS = configs_dir() / "mini" / "articles.jsonl"
ROLES = ("plan", "action", "reflect")

EVERY_SCHEME = [
    *("non_shared", "full_shared", "base_shared", "base_lr_shared", "pre_lr_shared", "own_kv", "alora", "ridge"),
    *("rebase_shared:lp", "rebase_shared:db", "rebase_shared:fused", "rebase_shared:auto"),
    *("droidspeak:layers=1", "droidspeak_scattered:layers=0", "cacheblend", "relay_caching:layers=0-1"),
    *("neutral_prefix:early", "neutral_prefix:full,schedule=auto"),
]
"""Each scheme, in the schedules and with the boundaries that change what a session remembers."""


def may_search(*texts: str) -> Override:
    """Lets a script search for `texts`, besides words of the question."""
    rule = {"span_of": "question", "also": list(texts)}
    return Override(("flow", "nodes", "argue", "constrain", "Search"), rule, "the test")


SEARCHES = may_search()
"""With this a random model searches for a few words of the question."""


def short_team(*changes: Override, **limits: int) -> Team:
    """The shipped team with few tokens and steps, sampling at temperature 1."""
    values = [
        Override(("roles", role, "sampling"), {"temperature": 1.0, "max_new_tokens": 6}, "the test") for role in ROLES
    ]
    limits = {"max_steps": 3, "max_observation_tokens": 80, **limits}
    values += [Override(("limits", name), value, "the test") for name, value in limits.items()]
    return Team.load("search", overrides=[*values, *changes], need_adapters=False)


def tiny_engine(
    folder: Path, scheme: str, *, kind: type[Backbone] = Backbone, config: EngineConfig | None = None
) -> Engine:
    """An engine with an adapter for each role, of the kind that the scheme takes; its tokens are bytes.

    `folder`: where the scheme ridge finds its maps. `kind`: the class of the backbone.
    """
    model, folders = tiny_weights(scheme)
    backbone = kind(copy.deepcopy(model))
    adapters = backbone.load_adapters(folders)
    if scheme == "ridge":
        folder.mkdir(parents=True, exist_ok=True)
        scheme = f"ridge:{write_maps(folder / 'maps.safetensors', backbone, adapters)}"
    reader: Any = ByteTokenizer()  # the engine itself never reads text
    return Engine(backbone, adapters, make_scheme(scheme), tokenizer=reader, config=config)


Weights = tuple[PreTrainedModel, dict[str, Path]]


def tiny_weights(scheme: str) -> Weights:
    """A model and a folder of an adapter for each role, of the kind that the scheme takes; not to be changed."""
    name, *_ = scheme.split(":")
    return _weights(name if name in ("alora", "base_lr_shared") else "plain")


@functools.cache
def _weights(kind: str) -> Weights:
    model = tiny_model(vocab_size=256, max_position_embeddings=4096, layers=2)
    invoked: dict[str, Any] = {"alora_invocation_tokens": [ord(":")]} if kind == "alora" else {}
    place = scratch() / f"crew-{kind}"
    folders = {role: tiny_adapter(model, place / role, seed=seed, **invoked) for seed, role in enumerate(ROLES)}
    if kind == "base_lr_shared":
        share_a(folders.values())
    return model, folders


def write_maps(file: Path, backbone: Backbone, adapters: AdapterSet) -> Path:
    """Maps for the scheme ridge that are far from doing nothing."""
    generator = torch.Generator().manual_seed(5)
    shape = (backbone.num_layers, backbone.num_kv_heads, backbone.head_dim, backbone.head_dim)

    def draw() -> torch.Tensor:
        return torch.eye(backbone.head_dim) + 0.3 * torch.randn(shape, generator=generator)

    layers = frozenset(range(backbone.num_layers))
    maps = {digest: RidgeMap(draw(), draw(), torch.ones(len(layers)), layers) for digest in adapters.hashes.values()}
    save_maps(file, maps, backbone_hash=backbone.content_hash)
    return file
