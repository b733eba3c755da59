"""A tool whose answers, and whose hangs, depend on its argument alone, so that an episode can be replayed."""

import hashlib
import time
from collections.abc import Mapping

from agentrt.config.team import Override, Team
from agentrt_tools import Json, ToolResult

WORDS = ("river", "director", "city", "novel", "born", "film", "1926", "capital", "author", "bridge")


class HangingTool:
    """Answers at once; for one argument in `every` it sleeps for `hang_s` first, longer than the team waits."""

    def __init__(self, name: str, *, every: int = 8, hang_s: float = 1.0) -> None:
        self.name = name
        self.every = every
        self.hang_s = hang_s

    def __call__(self, argument: str, state: Mapping[str, Json], *, question: str = "") -> ToolResult:
        digest = hashlib.sha256(argument.encode()).digest()
        if digest[0] % self.every == 0:
            time.sleep(self.hang_s)
        text = " ".join(WORDS[byte % len(WORDS)] for byte in digest[: 4 + digest[1] % 12])
        return ToolResult(f"{text.capitalize()}.", state=dict(state), titles=(text.title(),))


def patient(team: Team) -> list[Override]:
    """Changes to a team: its tools are given up on after half a second, without a retry or an end of the episode.

    Nor does an episode end because the machine is slow.
    """
    settings = {"timeout_s": 0.5, "retries": 0}
    changes = [Override(("tools", name, key), value, "soak") for name in team.tools for key, value in settings.items()]
    limits = {"max_tool_errors": 99, "time_s": 3600}
    return [*changes, *(Override(("limits", name), value, "soak") for name, value in limits.items())]
