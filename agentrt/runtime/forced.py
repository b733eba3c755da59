"""The answer that a team is made to write when a limit ends its episode (`on_limit: force_answer`)."""

from typing import Final

from langgraph.runtime import Runtime

from agentrt.config.flow import FINISH
from agentrt.config.team import RoleNode, Team
from agentrt.runtime.role_node import NodeFunction, role_node
from agentrt.runtime.state import EpisodeState, RunContext

FORCED: Final = "forced answer"
"""The graph's node; a blank keeps it apart from the names of a team file."""

FORCEABLE: Final = ("loop", "limit:steps", "limit:turns", "limit:tokens", "limit:context", "limit:tool_errors")
"""Limits that leave time for one more turn; whether there is room is seen when it comes."""


def forced_answer(name: str, node: RoleNode, team: Team) -> NodeFunction:
    """Writes the argument of Finish as `node` does, whatever was written before; the limit stays in `forced_by`.

    An answer that had been given before is written anew. Without room the limit stays the status.
    """
    write = role_node(name, node, team, {}, forced=True)

    def run(state: EpisodeState, *, runtime: Runtime[RunContext]) -> EpisodeState:
        # A name without its argument may stand at the end: its line is closed, and Finish begins another.
        field = "argument" if state["field"] == "action" else state["field"]
        changes = write({**state, "action": FINISH, "field": field, "status": ""}, runtime=runtime)
        if "answer" not in changes:
            return {**changes, "status": state["status"]}
        return {**changes, "action": FINISH, "status": "forced", "forced_by": state["status"]}

    return run
