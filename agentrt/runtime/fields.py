"""Which text may fill a field: the constraint of a node, given what the episode has seen."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from agentrt.config.flow import Emits
from agentrt.config.team import ConstrainConfig, RoleNode
from agentrt.questions.question import posed_letters
from agentrt.runtime.constraints import MAX_SPAN_WORDS, ChoiceConstraint, FieldConstraint, SpanConstraint
from agentrt.runtime.dialect import Renderer
from agentrt.runtime.endings import EndingConstraint
from agentrt.runtime.state import EpisodeState, unread_titles

FULL_STOP: Final = "."
"""What ends a thought behind a constrained text."""


def has_argument(node: RoleNode, action: str, state: EpisodeState) -> bool:
    """Whether `node` could write any argument for `action`: there are titles to read, or texts to quote."""
    rule = node.constrain.get(action)
    if rule is not None and rule.also:
        return True
    if rule is not None and rule.quoted:
        return any(_texts(rule, state))
    choices = rule.choices if rule is not None else node.choices
    return bool(unread_titles(state)) if choices == "seen_titles" else True


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
    if rule is None and node.choices is not None:
        rule = ConstrainConfig(choices=node.choices)
    return None if rule is None else _constraint(renderer, "argument", rule, state, max_tokens)


def thought_constraint(
    renderer: Renderer, node: RoleNode, state: EpisodeState, max_tokens: int
) -> FieldConstraint | None:
    """The constraint on the end of a thought; None: free text throughout."""
    endings = {
        words: partial(_constraint, renderer, "thought", rule, state, max_tokens, closing=FULL_STOP)
        for words, rule in node.after.items()
    }
    return EndingConstraint(renderer, endings, max_tokens) if endings else None


def _constraint(
    renderer: Renderer, emits: Emits, rule: ConstrainConfig, state: EpisodeState, max_tokens: int, *, closing: str = ""
) -> FieldConstraint | None:
    """What a rule of the team file allows now; None where it would allow nothing."""
    if rule.quoted:
        texts, words = _texts(rule, state), rule.max_words or MAX_SPAN_WORDS
        span = SpanConstraint(
            renderer, emits, texts, also=rule.also, max_words=words, max_tokens=max_tokens, closing=closing
        )
        return None if span.empty else span
    listed = [*_listed(rule.choices or (), state), *rule.also]
    return ChoiceConstraint(renderer, emits, listed, closing=closing) if listed else None


def _texts(rule: ConstrainConfig, state: EpisodeState) -> list[str]:
    """What a span may be taken from, as it is now."""
    of = {"question": [state["question"]], "observations": state["observations"]}
    return [text for each in rule.quoted for text in of[each]]


def _listed(choices: Sequence[str] | str, state: EpisodeState) -> Sequence[str]:
    match choices:
        case "seen_titles":
            return unread_titles(state)
        case "options":
            return posed_letters(state["question"])
    return choices
