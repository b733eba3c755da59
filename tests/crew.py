"""The shipped team on a tiny random model, short enough for tests."""

from pathlib import Path
from typing import Any

from agentrt.builtin import configs_dir
from agentrt.config.team import Override, Team
from agentrt.engine import Engine
from agentrt.model.backbone import Backbone
from agentrt.model.tiny import tiny_adapter, tiny_model
from agentrt.schemes.make import make_scheme
from agentrt.testing import ByteTokenizer

CORPUS = configs_dir() / "mini" / "articles.jsonl"
ROLES = ("plan", "action", "reflect")


def short_team(*changes: Override, **limits: int) -> Team:
    """The shipped team with few tokens and steps, sampling at temperature 1."""
    values = [
        Override(("roles", role, "sampling"), {"temperature": 1.0, "max_new_tokens": 6}, "the test") for role in ROLES
    ]
    limits = {"max_steps": 3, "max_observation_tokens": 80, **limits}
    values += [Override(("limits", name), value, "the test") for name, value in limits.items()]
    return Team.load("search", overrides=[*values, *changes], need_adapters=False)


def tiny_engine(folder: Path, scheme: str) -> Engine:
    """An engine with an adapter for each role; its tokens are bytes."""
    model = tiny_model(vocab_size=256, max_position_embeddings=4096, layers=2)
    folders = {role: tiny_adapter(model, folder / role, seed=seed) for seed, role in enumerate(ROLES)}
    backbone = Backbone(model)
    reader: Any = ByteTokenizer()  # the engine itself never reads text
    return Engine(backbone, backbone.load_adapters(folders), make_scheme(scheme), tokenizer=reader)
