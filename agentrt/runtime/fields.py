"""Which text may fill a field: the constraint of a node, given what the episode has seen."""

from collections.abc import Mapping, Sequence

from agentrt.config.team import RoleNode
from agentrt.runtime.constraints import ChoiceConstraint, FieldConstraint, SpanConstraint
from agentrt.runtime.dialect import Renderer
from agentrt.runtime.state import EpisodeState, unread_titles


def has_argument(node: RoleNode, action: str, state: EpisodeState) -> bool:
    """Whether `node` could write any argument for `action`: there are titles to read, or texts to quote."""
    rule = node.constrain.get(action)
    if rule is not None and rule.also:
        return True
    if rule is not None and rule.span_of == "observations":
        return bool(state["observations"])
    if _choices(node, action) == "seen_titles":
        return bool(unread_titles(state))
    return True


def offered(node: RoleNode, argue: Mapping[str, RoleNode], state: EpisodeState) -> Sequence[str]:
    """The choices of an action or verdict node.

    `argue` gives the node that writes each action's argument. An action is dropped while its argument could be
    nothing, e.g. Retrieve before any title was seen; if that leaves none, all stay and the argument is free text.
    """
    choices = node.choices if isinstance(node.choices, tuple) else ()
    possible = [choice for choice in choices if choice not in argue or has_argument(argue[choice], choice, state)]
    return possible or choices


def argument_constraint(
    renderer: Renderer, node: RoleNode, state: EpisodeState, max_tokens: int
) -> FieldConstraint | None:
    """The constraint on an argument for the action chosen before; None: free text."""
    rule = node.constrain.get(state["action"])
    also = rule.also if rule is not None else ()
    if rule is not None and rule.span_of is not None:
        texts = state["observations"] if rule.span_of == "observations" else [state["question"]]
        span = SpanConstraint(renderer, "argument", texts, also=also, max_tokens=max_tokens)
        return None if span.empty else span
    choices = _choices(node, state["action"])
    listed = unread_titles(state) if choices == "seen_titles" else list(choices)
    return ChoiceConstraint(renderer, "argument", [*listed, *also]) if listed or also else None


def _choices(node: RoleNode, action: str) -> Sequence[str] | str:
    """Listed strings, "seen_titles", or nothing; the action's own rule goes before the node's."""
    rule = node.constrain.get(action)
    return (rule.choices if rule is not None else node.choices) or ()
