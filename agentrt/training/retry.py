"""The team as training sees it: a wrong answer is tried again."""

from collections.abc import Mapping
from typing import Final

from agentrt.config.flow import END, RoleNode
from agentrt.config.team import Team

_WRONG: Final = "wrong"


def with_retry(team: Team) -> Team:
    """The team with every verdict "wrong" leading back to the start of the flow, where it led to the end.

    So roles learn to go on after a wrong answer whether or not their team lets them, up to the verdict the tokens are
    the same, and a team may turn retries on without training again.
    """
    nodes = dict(team.flow.nodes)
    for name, node in team.flow.nodes.items():
        follows = isinstance(node, RoleNode) and node.emits == "verdict" and node.next
        if isinstance(node, RoleNode) and isinstance(follows, Mapping) and follows.get(_WRONG) == END:
            nodes[name] = node.model_copy(update={"next": {**follows, _WRONG: team.flow.start}})
    return team.model_copy(update={"flow": team.flow.model_copy(update={"nodes": nodes})})
