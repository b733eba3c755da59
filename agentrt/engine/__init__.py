"""The engine: sessions submit turns, one worker packs their passes into steps."""

from agentrt.engine.config import EngineConfig
from agentrt.engine.engine import Engine
from agentrt.engine.health import EngineHealth
from agentrt.engine.session import Session
from agentrt.engine.stats import EngineStats
from agentrt.engine.turn import Turn, TurnResult, TurnUsage

__all__ = ["Engine", "EngineConfig", "EngineHealth", "EngineStats", "Session", "Turn", "TurnResult", "TurnUsage"]
