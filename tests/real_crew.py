"""The shipped team with its adapters on the default backbone, short enough for tests."""

from collections.abc import Callable

from agentrt.config.team import Override, Team
from agentrt.engine import Engine, EngineConfig
from agentrt.model.backbone import Backbone
from agentrt.model.load import load_model
from agentrt.schemes.make import make_scheme
from tests.crew import ROLES


def real_team() -> Team:
    """Greedy, two steps of a few tokens each."""
    values: dict[str, object] = {"max_steps": 2, "max_observation_tokens": 48}
    changes = [Override(("limits", name), value, "the test") for name, value in values.items()]
    changes += [Override(("roles", role, "sampling", "max_new_tokens"), 12, "the test") for role in ROLES]
    return Team.load("search", overrides=changes)


def real_backbone(dtype: str, kind: type[Backbone] = Backbone) -> Callable[[], Backbone]:
    """Makes the default backbone. Its weights are read now, so that processes forked from this one share them.

    Raises BackboneError where it cannot be had.
    """
    loaded = load_model("smollm2-135m", dtype=dtype)  # type: ignore[arg-type]
    return lambda: kind(loaded.model, content_hash=loaded.content_hash, names=loaded.names, tokenizer=loaded.tokenizer)


def real_engine(backbone: Backbone, scheme: str, config: EngineConfig | None = None) -> Engine:
    """An engine with the shipped adapters."""
    adapters = backbone.load_adapters(Team.load("search").adapters())
    return Engine(backbone, adapters, make_scheme(scheme), config=config)
