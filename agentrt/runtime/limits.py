"""When an episode stops by itself: pure checks that name the limit, or nothing.

A step is one action. Context is counted in the model's own tokens. Alternating loops and forced answers have their
place here.
"""

import time
from collections.abc import Sequence

from agentrt.config.team import LimitsConfig
from agentrt.runtime.events import Status
from agentrt.runtime.state import RunContext


def out_of_time(context: RunContext) -> Status | None:
    """Checked before every node."""
    return "limit:time" if time.monotonic() > context.deadline else None


def out_of_room(context: RunContext, tokens: int) -> Status | None:
    """Whether `tokens` more, the most that a turn may add, do not fit the trajectory."""
    return "limit:context" if len(context.session.trajectory) + tokens > context.max_context else None


def out_of_steps(limits: LimitsConfig, steps: int) -> Status | None:
    """Checked before a node that leads to the next action."""
    return "limit:steps" if steps >= limits.max_steps else None


def loops(limits: LimitsConfig, calls: Sequence[list[str]], call: list[str]) -> Status | None:
    """Whether `call` (action, argument, observation), the newest of `calls`, brought nothing new too often.

    A lookup that pages through its results is no loop: every observation differs.
    """
    return "loop" if calls.count(call) >= max(limits.repeat, 2) else None


def tools_fail(limits: LimitsConfig, failed: int) -> Status | None:
    return "limit:tool_errors" if failed > limits.max_tool_errors else None
