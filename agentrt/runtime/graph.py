"""A team's flow as a LangGraph StateGraph: one graph node per node of the team file, under the same name."""

from collections.abc import Mapping
from typing import Any

from langgraph.graph import END as GRAPH_END
from langgraph.graph import START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.runtime import Runtime

from agentrt.config.flow import CHOOSES, DEFAULT, FINISH
from agentrt.config.team import END, RoleNode, Team, ToolNode
from agentrt.runtime.forced import FORCEABLE, FORCED, forced_answer
from agentrt.runtime.rebuild import enter
from agentrt.runtime.role_node import NodeFunction, role_node
from agentrt.runtime.state import EpisodeState, RunContext
from agentrt.runtime.tool_node import tool_node

Graph = CompiledStateGraph[EpisodeState, RunContext, EpisodeState, EpisodeState]


def compile_graph(team: Team) -> Graph:
    """The team's flow, ready to run with a RunContext."""
    graph: StateGraph[EpisodeState, RunContext, EpisodeState, EpisodeState]
    graph = StateGraph(EpisodeState, context_schema=RunContext)
    for name, node in team.flow.nodes.items():
        if isinstance(node, RoleNode):
            argue, starts_step = arguers(team, node), leads_to_action(team, name)
            run = role_node(name, node, team, argue, starts_step=starts_step)
        else:
            run = tool_node(team)
        graph.add_node(name, _entered(run))
        again = retrying(team) if isinstance(node, ToolNode) else []
        targets = [_graph_name(target) for target in dict.fromkeys([*node.targets(), *again])]
        graph.add_conditional_edges(name, _router(team, node), [*targets, _after_limit(team), GRAPH_END])
    if team.limits.on_limit == "force_answer":
        name, node = answering(team)
        graph.add_node(FORCED, _entered(forced_answer(name, node, team)))
        graph.add_edge(FORCED, GRAPH_END)
    graph.add_edge(START, team.flow.start)
    return graph.compile()


def arguers(team: Team, node: RoleNode) -> Mapping[str, RoleNode]:
    """Action -> the node that writes its argument next, of the actions that `node` may choose."""
    if node.emits != "action" or not isinstance(node.choices, tuple):
        return {}
    following = {action: team.flow.nodes.get(node.follow(action)) for action in node.choices}
    return {
        action: after
        for action, after in following.items()
        if isinstance(after, RoleNode) and after.emits == "argument"
    }


def leads_to_action(team: Team, name: str) -> bool:
    """Whether an action is certain to be chosen next: the node emits one, or only thoughts come before it."""
    passed: set[str] = set()
    while name not in passed:
        passed.add(name)
        node = team.flow.nodes.get(name)
        if not isinstance(node, RoleNode):
            return False
        if node.emits != "thought" or not isinstance(node.next, str):
            return node.emits in CHOOSES
        name = node.next
    return False


def retrying(team: Team) -> list[str]:
    """Nodes that write again after a line that was no action."""
    return [name for name, node in team.flow.role_nodes().items() if node.on_fail == "retry"]


def telling_node(team: Team, node: RoleNode) -> str:
    """The tool node behind a call, which also tells the model why a line was no action."""
    targets = [node.next.get(DEFAULT, "")] if not isinstance(node.next, str) else []
    return next(name for name in [*targets, *node.targets()] if isinstance(team.flow.nodes.get(name), ToolNode))


def _router(team: Team, node: RoleNode | ToolNode) -> Any:
    """Where the flow goes on: to the end once there is a status, else by the value that decides."""
    teller = telling_node(team, node) if isinstance(node, RoleNode) and node.emits == "call" else ""

    def route(state: EpisodeState) -> str:
        if state["status"]:
            return _after_limit(team) if state["status"] in FORCEABLE else GRAPH_END
        if not isinstance(node, RoleNode):
            return _graph_name(state["retry"] or node.next)
        if teller and state["refusal"]:
            return teller
        decisive = state["verdicts"][-1] if node.emits == "verdict" else state["action"]
        return _graph_name(node.follow(decisive))

    return route


def _entered(run: NodeFunction) -> NodeFunction:
    """The node's function, once its session is where the state says."""

    def node(state: EpisodeState, *, runtime: Runtime[RunContext]) -> EpisodeState:
        enter(runtime.context, state)
        return run(state, runtime=runtime)

    return node


def answering(team: Team) -> tuple[str, RoleNode]:
    """The node that writes the argument of Finish; a checked team that forces answers has one."""
    every = (arguers(team, node).get(FINISH) for node in team.flow.role_nodes().values())
    found = next(node for node in every if node is not None)
    return next(name for name, node in team.flow.nodes.items() if node is found), found


def _after_limit(team: Team) -> str:
    return FORCED if team.limits.on_limit == "force_answer" else GRAPH_END


def _graph_name(name: str) -> str:
    return GRAPH_END if name == END else name
