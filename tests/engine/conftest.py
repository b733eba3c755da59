"""An engine over a tiny model, per scheme."""

import copy

import pytest

from agentrt.engine import Engine, EngineConfig
from agentrt.model.backbone import Backbone
from agentrt.schemes.make import make_scheme
from tests.models import make

QKVO = "/qkvo"


@pytest.fixture
def open_engine(tmp_path):
    """open_engine(scheme, family, **config): an engine that is closed after the test, its books checked.

    `scheme/qkvo`: over a model with k_norm, with adapters on the key projection too.
    """
    engines = []
    models = {}

    def build(scheme="pre_lr_shared", family="llama", targets=("q_proj", "v_proj"), **config):
        if scheme.endswith(QKVO):
            scheme, family = scheme.removesuffix(QKVO), "qwen3"
            targets = ("q_proj", "k_proj", "v_proj", "o_proj")
        key = (family, targets)
        if key not in models:
            shared_a = scheme.startswith("base_lr_shared")
            models[key] = make(tmp_path / f"{family}{len(models)}", family, targets=targets, shared_a=shared_a)
        model, folders = models[key]
        backbone = Backbone(copy.deepcopy(model))
        adapters = backbone.load_adapters(folders)
        limits = {"segment_slots": 64, "poison": True, "ride_rows": 4, **config}
        engine = Engine(backbone, adapters, make_scheme(scheme), config=EngineConfig(**limits))
        engine.model, engine.folders = model, folders
        engines.append(engine)
        return engine

    yield build
    for engine in engines:
        if engine.stats().sessions:
            engine.check_integrity()
        engine.close()
        assert engine.stats().held_bytes == 0
