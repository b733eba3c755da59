"""What a field that a role wrote means for its episode: the changes of the state. Knows no engine and no LangGraph."""

from collections.abc import Mapping

from agentrt.config.flow import FINISH
from agentrt.config.team import RoleNode, Team
from agentrt.runtime.actions import NO_ACTION, PARSERS, Action, ParseFailure, parse_strict
from agentrt.runtime.limits import loops
from agentrt.runtime.state import EpisodeState
from agentrt.runtime.turns import Written


def outcome(team: Team, name: str, node: RoleNode, state: EpisodeState, written: Written) -> EpisodeState:
    """The changes that a field written at the node `name` makes. A limit is a `status`."""
    text = written.field.text
    match node.emits:
        case "thought":
            return {}
        case "action":
            return {"action": text, "argument": "", "refusal": "", "retry": "", "steps": state["steps"] + 1}
        case "verdict":
            return {"verdicts": [text]}
        case "argument":
            return _argument(team, state, written)
        case "call":
            return _call(team, name, node, state, written)


def read_call(team: Team, node: RoleNode, text: str) -> Action | ParseFailure:
    """A whole action line, in the grammar of its node."""
    choices = node.choices if isinstance(node.choices, tuple) else ()
    return PARSERS[node.parser or "strict"](text, team.dialect, choices)


def _argument(team: Team, state: EpisodeState, written: Written) -> EpisodeState:
    d, action, text = team.dialect, state["action"], written.field.text
    parsed = parse_strict(f"{action}{d.open}{text}{d.close if written.field.closed else ''}", d)
    changes: EpisodeState = {
        "argument": text,
        "refusal": parsed.reason if isinstance(parsed, ParseFailure) else "",
        "parse_failures": state["parse_failures"] + isinstance(parsed, ParseFailure),
    }
    if action in team.tools:
        return changes
    return changes | _answer(team, state, action, text)


def _call(team: Team, name: str, node: RoleNode, state: EpisodeState, written: Written) -> EpisodeState:
    """A line that is no action leaves `refusal` for the model to read, and its text as the argument."""
    parsed = read_call(team, node, written.field.text)
    changes: EpisodeState = {"steps": state["steps"] + 1, "refusal": "", "retry": ""}
    if isinstance(parsed, Action):
        changes["repairs"] = _counted(state["repairs"], parsed)
        changes |= {"action": parsed.name, "argument": parsed.argument}
        if parsed.name == FINISH:
            return changes | _answer(team, state, parsed.name, parsed.argument)
        if parsed.name != NO_ACTION:
            return changes
        listed = ", ".join(node.choices or ())
        changes["refusal"] = f"no action was taken, write one of {listed}"
    else:
        changes |= {"action": "", "argument": parsed.text, "refusal": parsed.reason}
        changes["parse_failures"] = state["parse_failures"] + 1
    if node.on_fail == "fail":
        changes["status"] = "malformed"
    if node.on_fail == "retry":
        changes["retry"] = name
    return changes


def _answer(team: Team, state: EpisodeState, action: str, text: str) -> EpisodeState:
    answer = [action, text, ""]
    changes: EpisodeState = {"answer": text, "calls": [answer]}
    if status := loops(team.limits, [*state["calls"], answer]):
        changes["status"] = status
    return changes


def _counted(before: Mapping[str, int], action: Action) -> dict[str, int]:
    return {**before, **{repair: before.get(repair, 0) + 1 for repair in action.repairs}}
