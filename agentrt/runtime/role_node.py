"""The node of a flow in which a role writes one field.

It reads the state, works with the run's context, and returns what it changes. A limit is a `status`, never an
exception; whatever was written before it stays.
"""

import time
from collections.abc import Mapping
from typing import NamedTuple, Protocol

from langgraph.runtime import Runtime

from agentrt.config.team import RoleNode, Team
from agentrt.runtime.actions import Action
from agentrt.runtime.confidence import answer_confidence
from agentrt.runtime.constraints import ChoiceConstraint, FieldConstraint
from agentrt.runtime.dialect import Renderer
from agentrt.runtime.events import RoleUsage, TurnFinished, TurnStarted
from agentrt.runtime.fields import argument_constraint, offered, thought_constraint
from agentrt.runtime.limits import out_of_room, out_of_steps, out_of_time, out_of_turns
from agentrt.runtime.outcomes import outcome, read_call
from agentrt.runtime.state import EpisodeState, RunContext, SpanRecord
from agentrt.runtime.turns import Written, add_turn, sampling_for, turn_facts, turn_seed, write


class NodeFunction(Protocol):
    """What LangGraph calls: it passes the whole state, and takes back what changed."""

    def __call__(self, state: EpisodeState, *, runtime: Runtime[RunContext]) -> EpisodeState: ...


class Segment(NamedTuple):
    kind: str
    token_ids: list[int]


def role_node(
    name: str,
    node: RoleNode,
    team: Team,
    argue: Mapping[str, RoleNode],
    *,
    starts_step: bool = False,
    forced: bool = False,
) -> NodeFunction:
    """The function of a role node; `forced`: beyond the limit of turns and tokens.

    `argue`: which node writes the argument of each action that this one may choose. `starts_step`: whether the
    node leads to the next action, so that it does not run once the steps are used up.
    """
    role, own = team.roles[node.role], team.adapter_name(node.role)
    budget = node.max_new_tokens or role.sampling.max_new_tokens

    def run(state: EpisodeState, runtime: Runtime[RunContext]) -> EpisodeState:
        context, turn = runtime.context, state["turns"] + 1
        adapter = context.adapters.get(node.role, own)
        steps = out_of_steps(team.limits, state["steps"]) if starts_step else None
        status = out_of_time(context) or steps or (None if forced else out_of_turns(team.limits, state))
        if status:
            return {"status": status}
        constraint = _constraint(context.renderer, node, argue, state, budget)
        sampling = sampling_for(
            role.sampling,
            context.renderer,
            node.emits,
            constraint,
            max_new_tokens=budget,
            seed=turn_seed(context.seed, state["question"], turn),
        )
        segments = lead_in(context.renderer, node, role.instruction, state)
        needed = sum(len(segment.token_ids) for segment in segments) + sampling.max_new_tokens
        if status := out_of_room(context, needed):
            return {"status": status}

        step = state["steps"] + starts_step
        context.emit(TurnStarted(turn=turn, step=step, node=name, role=node.role, emits=node.emits))
        started = time.monotonic()
        spans = [
            span for kind, token_ids in segments for span in context.append(token_ids, author="runtime", kind=kind)
        ]
        written = write(context, adapter, node.emits, sampling, constraint, turn)
        if written is None:
            context.stop_if_cancelled()
            return {"status": "limit:time", "spans": spans}
        facts = turn_facts(written.result)
        context.emit(
            TurnFinished(
                turn=turn,
                step=step,
                node=name,
                role=node.role,
                emits=node.emits,
                text=written.field.text,
                finish_reason=written.result.finish_reason,
                constrained=constraint is not None,
                mean_logprob=written.mean_logprob,
                repairs=_repairs(team, node, written),
                usage=facts,
            )
        )
        spans.append(_generated(context.renderer, node, adapter, written))
        if not written.field.closed and not written.field.tail:
            spans += context.append(context.renderer.closing(node.emits), author="runtime", kind="end")
        usage = RoleUsage.model_validate(state["usage"].get(node.role, {}))
        changes = outcome(team, name, node, state, written)
        if node.emits == "thought":
            changes["thought_logprobs"] = list(written.result.logprobs)
        if (answer := changes.get("answer")) is not None:
            changes["confidence"] = _confidence(context.renderer, answer, state, written)
        return {
            "spans": spans,
            "role": node.role,
            "field": node.emits,
            "tail": written.field.tail,
            "turns": turn,
            "turns_s": state["turns_s"] + time.monotonic() - started,
            "usage": {**state["usage"], node.role: add_turn(usage, facts).model_dump()},
            **changes,
        }

    return run


def lead_in(renderer: Renderer, node: RoleNode, instruction: str | None, state: EpisodeState) -> list[Segment]:
    """The context before a field: the end of the line before, the role's instruction if it takes over, the label."""
    takes_over = instruction is not None and state["role"] != node.role
    if node.emits == "argument" and state["field"] == "action" and not takes_over:
        return [Segment("label", renderer.label("argument", state["tail"]))]
    segments = []
    if state["field"]:
        segments.append(Segment("end", renderer.after(state["field"], state["tail"])))
    if instruction is not None and takes_over:
        segments.append(Segment("instruction", renderer.instruction(instruction)))
    if node.emits == "argument":
        segments.append(Segment("label", renderer.restated(state["action"])))
    return [*segments, Segment("label", renderer.label(node.emits))]


def _constraint(
    renderer: Renderer, node: RoleNode, argue: Mapping[str, RoleNode], state: EpisodeState, budget: int
) -> FieldConstraint | None:
    match node.emits:
        case "call":
            return None
        case "thought":
            return thought_constraint(renderer, node, state, budget)
        case "argument":
            return argument_constraint(renderer, node, state, budget)
        case "action" | "verdict":
            return ChoiceConstraint(renderer, node.emits, offered(node, argue, state))


def _repairs(team: Team, node: RoleNode, written: Written) -> tuple[str, ...]:
    """The repairs that a whole action line took to be read."""
    parsed = read_call(team, node, written.field.text) if node.emits == "call" else None
    return parsed.repairs if isinstance(parsed, Action) else ()


def _confidence(renderer: Renderer, answer: str, state: EpisodeState, written: Written) -> float | None:
    thoughts = (span["token_ids"] for span in reversed(state["spans"]) if span["kind"] == "thought")
    return answer_confidence(
        renderer.tokenizer, answer, next(thoughts, []), state["thought_logprobs"], written.result.logprobs
    )


def _generated(renderer: Renderer, node: RoleNode, adapter: str, written: Written) -> SpanRecord:
    token_ids = list(written.result.token_ids)
    text = renderer.tokenizer.decode(token_ids)
    return SpanRecord(author=node.role, kind=node.emits, path=adapter, text=text, token_ids=token_ids)
