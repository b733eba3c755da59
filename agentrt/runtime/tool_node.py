"""The node of a flow that calls the tool of the chosen action and appends its observation."""

from collections.abc import Mapping
from typing import NamedTuple

from langgraph.runtime import Runtime

from agentrt.config.team import Team
from agentrt.runtime.events import ToolCalled, ToolFinished
from agentrt.runtime.limits import loops, out_of_time, tools_fail
from agentrt.runtime.role_node import NodeFunction
from agentrt.runtime.state import EpisodeState, RunContext
from agentrt_tools import LINKS, CallRequest, Json, ToolCall, ToolHealth, clip


class Outcome(NamedTuple):
    """What the model is told, and what the log and the state keep. `call` is None where no tool was called."""

    text: str
    call: ToolCall | None
    titles: tuple[str, ...] = ()

    @property
    def found(self) -> bool:
        """Whether a tool found something: what else the model is told is no source for an answer."""
        return self.call is not None and self.call.result is not None and not self.call.result.miss


def tool_node(team: Team) -> NodeFunction:
    """The function of a tool node. A tool that fails is counted, shown to the model, and never silent."""

    def run(state: EpisodeState, runtime: Runtime[RunContext]) -> EpisodeState:
        context = runtime.context
        if status := out_of_time(context):
            return {"status": status}
        action = state["action"]
        outcome = _call(context, state)
        if outcome is None:
            context.stop_if_cancelled()
            return {"status": "limit:time"}
        text = _observation(context, outcome.text)
        health = ToolHealth.from_json(state["tool_health"])
        if outcome.call is not None:
            health = health + outcome.call.health
        context.emit(_finished(context, state, outcome, text, health))

        behind = state["field"] or "argument"
        token_ids = context.renderer.observation(text, state["tail"], behind=behind)
        spans = context.append(token_ids, author=action or "runtime", kind="observation")
        call = [action, state["argument"], text]
        changes: EpisodeState = {
            "spans": spans,
            "observations": [text if outcome.found else ""],
            "calls": [call],
            "field": "",
            "tail": "",
            "titles": _seen(state["titles"], outcome.titles, text),
        }
        if outcome.call is not None:
            changes["tool_health"] = health.to_json()
            changes["tools_s"] = state["tools_s"] + outcome.call.elapsed_s
            if outcome.call.result is not None:
                changes["tool_state"] = dict(outcome.call.result.state)
        stopped = tools_fail(team.limits, health.failed) or loops(team.limits, [*state["calls"], call])
        if status := out_of_time(context) or stopped:
            changes["status"] = status
        return changes

    return run


def _call(context: RunContext, state: EpisodeState) -> Outcome | None:
    """None if the run was cancelled, or ran out of time, while the tool worked."""
    action, argument = state["action"], state["argument"]
    if state["refusal"]:
        return Outcome(f"Malformed: {state['refusal']}.", None)
    if action not in context.tools:
        return Outcome(f"{action} is no tool.", None)
    tool = context.tools.name(action)
    context.emit(ToolCalled(step=state["steps"], action=action, tool=tool, argument=argument))
    nth = sum(before[:2] == [action, argument] for before in state["calls"])
    asked = CallRequest(action, tool, argument, state["question"], nth, state["tool_state"])
    call = context.tools.call(asked, stop=lambda: context.cancelled.is_set() or out_of_time(context))
    if call is None:
        return None
    if call.result is not None:
        return Outcome(call.result.text, call, call.result.titles)
    assert call.failure is not None
    told = call.failure.told or f"{action} failed ({call.failure.kind}). Try another action."
    return Outcome(told, call)


def _observation(context: RunContext, text: str) -> str:
    """The text as the model reads it: one line, no forged labels, within the token budget."""
    renderer, limit = context.renderer, context.team.limits.max_observation_tokens
    return clip(renderer.safe(text), limit, lambda part: len(renderer.tokenizer.encode(part)), keep_from=LINKS)


def _finished(
    context: RunContext, state: EpisodeState, outcome: Outcome, text: str, health: ToolHealth
) -> ToolFinished:
    action, call = state["action"], outcome.call
    result = call.result if call is not None else None
    facts: Mapping[str, Json] = result.facts if result is not None else {}
    failure = call.failure if call is not None else None
    return ToolFinished(
        step=state["steps"],
        action=action,
        tool=context.tools.name(action),
        text=text,
        miss=call is None or (result is not None and result.miss),
        failure=failure.kind if failure is not None else None,
        error=str(failure) if failure is not None else None,
        attempts=call.retries + 1 if call is not None else 0,
        seconds=call.elapsed_s if call is not None else 0.0,
        facts=dict(facts),
        tool_health=health.to_json(),
    )


def _seen(titles: list[str], new: tuple[str, ...], text: str) -> list[str]:
    """`titles` and the new ones that the clipped observation still shows, each once."""
    return list(dict.fromkeys([*titles, *(title for title in new if title in text)]))
