"""The engine: sessions submit turns, one worker packs their passes into steps."""

from agentrt.engine.config import EngineConfig, EngineStats
from agentrt.engine.engine import Engine
from agentrt.engine.session import Session
from agentrt.engine.turn import Turn, TurnResult, TurnUsage

__all__ = ["Engine", "EngineConfig", "EngineStats", "Session", "Turn", "TurnResult", "TurnUsage"]
