"""What a probe is told of a runtime, as JSON."""

from pydantic import BaseModel, ConfigDict


class EngineState(BaseModel):
    """See `agentrt.runtime.ports.EngineHealth`."""

    model_config = ConfigDict(frozen=True, from_attributes=True)

    status: str
    error: str | None
    sessions: int
    waiting: int
    decoding: int
    waiting_for_room: int
    held_bytes: int


class RuntimeHealth(BaseModel):
    """`status`: ok, draining, closed, or what is wrong with the engine. `engine` is None until one is loaded."""

    model_config = ConfigDict(frozen=True)

    status: str
    runs: int
    """Episodes in hand."""
    engine: EngineState | None

    @property
    def ok(self) -> bool:
        return self.status == "ok"
