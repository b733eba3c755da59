"""What a caller is told of a step that failed."""

import torch

from agentrt.errors import AgentrtError, EngineError, ResourceError


def step_failure(error: Exception) -> AgentrtError:
    """ResourceError where memory ran out, EngineError else; each with `error` as its cause."""
    where = "the session is at its last turn boundary"
    told: AgentrtError
    if _out_of_memory(error):
        fix = "run fewer sessions at once, or set a smaller kv_budget or max_step_tokens"
        told = ResourceError(f"memory ran out in a step ({error}); {where}; {fix}")
    else:
        told = EngineError(f"a step failed: {error!r}; {where}")
    told.__cause__ = error
    return told


def _out_of_memory(error: Exception) -> bool:
    """On a CPU torch has no class of its own for it."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or (
        isinstance(error, RuntimeError) and "DefaultCPUAllocator: can't allocate memory" in str(error)
    )
