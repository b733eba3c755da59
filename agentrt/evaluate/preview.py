"""What the roles of a team read: one episode as the runtime renders it, with placeholders for what is written.

The episode is played on the scripted engine, so its segments and tokens are those of a real one.
"""

from collections import deque
from collections.abc import Iterator
from typing import Final, NamedTuple

from agentrt.config.flow import CHOOSES, END, FlowConfig, ToolNode
from agentrt.config.team import Team
from agentrt.runtime.episode import Runtime
from agentrt.runtime.ports import Tokenizer
from agentrt.testing import FakeTool, ScriptedEngine
from agentrt_tools import ToolResult

PLACEHOLDER: Final = "…"
"""Stands for the question, for what roles write freely, and for observations."""

_PLENTY: Final = 10_000


class PreviewSpan(NamedTuple):
    """One segment. `author`: the role that writes it, or who gives it. `num_tokens` are the tokens of `text`; `at_most`
    is the limit of a field or an observation, None for text of the team's own."""

    author: str
    kind: str
    text: str
    num_tokens: int
    at_most: int | None


def preview(team: Team, tokenizer: Tokenizer) -> list[PreviewSpan]:
    """The spans of an episode that goes through every node it can before it ends."""
    texts = [text for _, text in _written(team)]
    engine = ScriptedEngine(texts, tokenizer=tokenizer, dialect=team.dialect)
    tools = {name: FakeTool(tool.use, {PLACEHOLDER: ToolResult(PLACEHOLDER)}) for name, tool in team.tools.items()}
    with Runtime(_unlimited(team, max_turns=len(texts)), engine=engine, tools=tools) as runtime:
        spans = runtime.run(PLACEHOLDER).spans
    limits = (_most_tokens(team, name) for name, _ in _written(team))
    return [
        PreviewSpan(
            author=span.author,
            kind=span.kind,
            text=span.text,
            num_tokens=len(span.token_ids),
            at_most=next(limits)
            if span.path is not None
            else team.limits.max_observation_tokens
            if span.kind == "observation"
            else None,
        )
        for span in spans
    ]


class _Move(NamedTuple):
    """From a node, by the text written there, to the next one; `action` is the action chosen by then."""

    name: str
    text: str
    next: str
    action: str


def _written(team: Team) -> Iterator[tuple[str, str]]:
    """(node, text) of every turn on a way through the flow that visits what it can."""
    name, action, visited = team.flow.start, "", set[str]()
    while name != END:
        way = _way(team.flow, name, action, visited)
        if not way:
            return
        for move in way:
            visited.add(move.name)
            if not isinstance(team.flow.nodes[move.name], ToolNode):
                yield move.name, _spelled(team, move)
        name, action = way[-1].next, way[-1].action


def _way(flow: FlowConfig, name: str, action: str, visited: set[str]) -> list[_Move]:
    """The shortest way to a node that was not visited, or else to the end; empty where there is none."""
    waiting: deque[list[_Move]] = deque([[]])
    seen = {(name, action)}
    to_end: list[_Move] = []
    while waiting:
        way = waiting.popleft()
        here, chosen = (way[-1].next, way[-1].action) if way else (name, action)
        if here == END:
            to_end = to_end or way
            continue
        if way and here not in visited and here != name:
            return way
        for move in _moves(flow, here, chosen):
            if (move.next, move.action) not in seen:
                seen.add((move.next, move.action))
                waiting.append([*way, move])
    return to_end


def _moves(flow: FlowConfig, name: str, action: str) -> Iterator[_Move]:
    node = flow.nodes[name]
    if isinstance(node, ToolNode):
        yield _Move(name, "", node.next, action)
    elif node.emits not in (*CHOOSES, "verdict"):
        yield _Move(name, PLACEHOLDER, node.follow(action), action)
    else:
        for choice in node.choices or ():
            yield _Move(name, choice, node.follow(choice), choice if node.emits in CHOOSES else action)


def _spelled(team: Team, move: _Move) -> str:
    """The field's text: a call is a whole action line."""
    if team.flow.role_nodes()[move.name].emits == "call":
        return f"{move.text}{team.dialect.open}{PLACEHOLDER}{team.dialect.close}"
    return move.text


def _unlimited(team: Team, max_turns: int) -> Team:
    """The team without what would end or bend the episode earlier: limits, and constraints on arguments."""
    values = team.values()
    values["limits"] = {"max_steps": _PLENTY, "repeat": _PLENTY, "max_turns": max_turns}
    for node in values["flow"]["nodes"].values():
        if "role" in node:
            node["max_new_tokens"] = _PLENTY
        if node.get("emits") == "argument":
            node.pop("constrain", None)
            node.pop("choices", None)
    return Team.restore(values, name=team.name, root=team.root, need_adapters=False)


def _most_tokens(team: Team, name: str) -> int:
    node = team.flow.role_nodes()[name]
    return node.max_new_tokens or team.roles[node.role].sampling.max_new_tokens
