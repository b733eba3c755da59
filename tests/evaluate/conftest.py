"""The shipped team on a tiny random model, short enough for tests."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agentrt.builtin import configs_dir
from agentrt.config.team import Override, Team
from agentrt.engine import Engine
from agentrt.model.backbone import Backbone
from agentrt.model.tiny import tiny_adapter, tiny_model
from agentrt.runtime.episode import Runtime
from agentrt.schemes.make import make_scheme
from agentrt.testing import ByteTokenizer

CORPUS = configs_dir() / "mini" / "articles.jsonl"
ROLES = ("plan", "action", "reflect")

OpenRuntime = Callable[..., Runtime]


def short_team(**limits: int) -> Team:
    """The shipped team with few tokens and steps, sampling at temperature 1."""
    values = [
        Override(("roles", role, "sampling"), {"temperature": 1.0, "max_new_tokens": 6}, "the test") for role in ROLES
    ]
    limits = {"max_steps": 3, "max_observation_tokens": 80, **limits}
    values += [Override(("limits", name), value, "the test") for name, value in limits.items()]
    return Team.load("search", overrides=values, need_adapters=False)


@pytest.fixture
def open_runtime(tmp_path: Path) -> Iterator[OpenRuntime]:
    """`open_runtime(scheme)`: the short team on a tiny model of its own, closed after the test."""
    opened: list[tuple[Runtime, Engine]] = []

    def build(scheme: str = "pre_lr_shared", **limits: int) -> Runtime:
        model = tiny_model(vocab_size=256, max_position_embeddings=4096, layers=2)
        folders = {role: tiny_adapter(model, tmp_path / role, seed=seed) for seed, role in enumerate(ROLES)}
        backbone, tokenizer = Backbone(model), ByteTokenizer()
        adapters: Any = backbone.load_adapters(folders)
        reader: Any = tokenizer  # the engine itself never reads text
        engine = Engine(backbone, adapters, make_scheme(scheme), tokenizer=reader)
        runtime = Runtime(short_team(**limits), engine=engine, corpus=CORPUS)
        opened.append((runtime, engine))
        return runtime

    yield build
    for runtime, engine in opened:
        runtime.close()
        assert engine.health().sessions == 0
        engine.close()
