"""When an episode stops by itself: pure checks that name the limit, or nothing.

A step is one action. Context is counted in the model's own tokens.
"""

import time
from collections.abc import Sequence

from agentrt.config.team import LimitsConfig
from agentrt.runtime.events import Status
from agentrt.runtime.state import EpisodeState, RunContext


def out_of_time(context: RunContext) -> Status | None:
    """Checked before every node."""
    return "limit:time" if time.monotonic() > context.deadline else None


def out_of_room(context: RunContext, tokens: int) -> Status | None:
    """Whether `tokens` more, the most that a turn may add, do not fit the trajectory."""
    return "limit:context" if len(context.session.trajectory) + tokens > context.max_context else None


def out_of_steps(limits: LimitsConfig, steps: int) -> Status | None:
    """Checked before a node that leads to the next action."""
    return "limit:steps" if steps >= limits.max_steps else None


def out_of_turns(limits: LimitsConfig, state: EpisodeState) -> Status | None:
    """Checked before every turn."""
    if limits.max_turns is not None and state["turns"] >= limits.max_turns:
        return "limit:turns"
    generated = sum(usage["generated_tokens"] for usage in state["usage"].values())
    return "limit:tokens" if limits.max_tokens is not None and generated >= limits.max_tokens else None


def loops(limits: LimitsConfig, calls: Sequence[list[str]]) -> Status | None:
    """Whether the newest of `calls` (action, argument, observation) brought nothing new too often.

    `repeat` times the same; two in turns, `repeat - 1` times each; or `repeat` tools in a row that told what had been
    told before. A lookup that pages through its results is no loop: every observation differs.
    """
    most = max(limits.repeat, 2)
    turns = calls[-2 * max(most - 1, 2) :]
    alternating = len(turns) == 2 * max(most - 1, 2) and turns[:-2] == turns[2:]
    told = [call[2] for call in calls if call[2]]
    stale = len(told) > most and all(text in told[:at] for at, text in list(enumerate(told))[-most:])
    return "loop" if list(calls).count(calls[-1]) >= most or alternating or stale else None


def tools_fail(limits: LimitsConfig, failed: int) -> Status | None:
    return "limit:tool_errors" if failed > limits.max_tool_errors else None
