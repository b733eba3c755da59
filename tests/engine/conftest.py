"""An engine over a tiny model, per scheme."""

import pytest

from agentrt.engine import Engine, EngineConfig
from agentrt.model.backbone import Backbone
from agentrt.schemes.make import make_scheme
from tests.engine.cast import cast, engine_parts

VARIANTS = [
    "non_shared",
    "full_shared",
    "base_shared",
    "base_lr_shared",
    "pre_lr_shared",
    "rebase_shared:lp",
    "rebase_shared:db",
    "rebase_shared:fused",
    "rebase_shared:auto",
    "rebase_shared:auto,adapted_tail=3,pivot=plan",
    "rebase_shared:lp,lp_at=handover",
    "droidspeak:layers=1-2",
    "droidspeak_scattered:layers=0+2",
    "cacheblend",
    "relay_caching:layers=0-2",
    "neutral_prefix:early",
    "neutral_prefix:question",
    "neutral_prefix:full,schedule=auto",
    "own_kv",
    "base_shared/qkvo",
    "base_lr_shared/qkvo",
    "pre_lr_shared/qkvo",
    "rebase_shared:lp/qkvo",
    "rebase_shared:auto/qkvo",
    "rebase_shared:db,pivot=plan/qkvo",
    "rebase_shared:lp,lp_at=handover/qkvo",
]
CORE = {
    "non_shared",
    "full_shared",
    "pre_lr_shared",
    "rebase_shared:db",
    "rebase_shared:auto",
    "cacheblend",
    "rebase_shared:auto/qkvo",
}
"""One of each way to share, and one with adapters on the key projection."""

every_scheme = pytest.mark.parametrize("scheme", VARIANTS)
few_schemes = pytest.mark.parametrize(
    "scheme", [each if each in CORE else pytest.param(each, marks=pytest.mark.slow) for each in VARIANTS]
)
"""For what hardly depends on the scheme, and for what takes long: the core by default, all of them among the slow."""


@pytest.fixture
def open_engine():
    """open_engine(variant, family, targets, kind, **config): an engine that is closed after the test, its books
    checked; `variant` as in `cast`, `kind` the class of its backbone."""
    engines = []

    def build(variant="pre_lr_shared", family="llama", targets=("q_proj", "v_proj"), kind=Backbone, **config):
        played = cast(variant, family, targets)
        limits = {"segment_slots": 64, "poison": True, "ride_rows": 4, **config}
        engine = Engine(*engine_parts(played, kind), make_scheme(played.scheme), config=EngineConfig(**limits))
        engines.append(engine)
        return engine

    yield build
    for engine in engines:
        if engine.stats().sessions:
            engine.check_integrity()
        engine.close()
        assert engine.stats().held_bytes == 0
