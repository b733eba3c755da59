"""The public names. Each is loaded when it is first used, so `import agentrt` imports neither torch nor pydantic."""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from agentrt.errors import (
    AdapterError,
    AgentrtError,
    BackboneError,
    CacheFullError,
    ConfigError,
    DataError,
    EngineClosedError,
    EngineError,
    ForkedError,
    QueueFullError,
    ResourceError,
    RunBusyError,
    SchemeError,
    SessionBusyError,
    ToolHealthError,
    TurnCancelledError,
    UsageError,
)

if TYPE_CHECKING:
    from agentrt.config.team import Team
    from agentrt.engine import Engine, EngineConfig, EngineHealth, Session, Turn, TurnResult
    from agentrt.model.sampling import Sampling
    from agentrt.runtime.episode import Runtime
    from agentrt.runtime.options import CancelToken
    from agentrt.runtime.result import EpisodeResult
    from agentrt.schemes import SCHEMES

__version__: Final = "0.1.0"

__all__ = [
    "SCHEMES",
    "AdapterError",
    "AgentrtError",
    "BackboneError",
    "CacheFullError",
    "CancelToken",
    "ConfigError",
    "DataError",
    "Engine",
    "EngineClosedError",
    "EngineConfig",
    "EngineError",
    "EngineHealth",
    "EpisodeResult",
    "ForkedError",
    "QueueFullError",
    "ResourceError",
    "RunBusyError",
    "Runtime",
    "Sampling",
    "SchemeError",
    "Session",
    "SessionBusyError",
    "Team",
    "ToolHealthError",
    "Turn",
    "TurnCancelledError",
    "TurnResult",
    "UsageError",
]

_HOMES: Final = {
    "SCHEMES": "agentrt.schemes",
    "CancelToken": "agentrt.runtime.options",
    "Engine": "agentrt.engine",
    "EngineConfig": "agentrt.engine",
    "EngineHealth": "agentrt.engine",
    "EpisodeResult": "agentrt.runtime.result",
    "Runtime": "agentrt.runtime.episode",
    "Sampling": "agentrt.model.sampling",
    "Session": "agentrt.engine",
    "Team": "agentrt.config.team",
    "Turn": "agentrt.engine",
    "TurnResult": "agentrt.engine",
}

if not TYPE_CHECKING:  # a module-level __getattr__ would hide misspelled names from type checkers

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(_HOMES[name]), name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *_HOMES})
