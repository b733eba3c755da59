import json

import pytest
from pydantic import ValidationError

from agentrt.runtime.events import (
    Event,
    RoleUsage,
    RunFinished,
    RunStarted,
    Timing,
    Token,
    ToolCalled,
    ToolFinished,
    TurnFacts,
    TurnFinished,
    TurnStarted,
    parse_event,
    to_json,
)

FACTS = TurnFacts(
    context_tokens=3,
    reused_tokens=9,
    recomputed_tokens=1,
    generated_tokens=4,
    ttft_s=0.25,
    submit_to_first_token_s=0.5,
    decode_tokens_per_s=20.0,
    kv_bytes=4096,
)
FINISHED = RunFinished(
    status="limit:steps",
    answer=None,
    steps=2,
    usage={"plan": RoleUsage(turns=1)},
    timing=Timing(total_s=1.0, turns_s=0.5, tools_s=0.25),
    tool_health={"calls": 1, "failures": {"timeout": 1}},
    run_id="r1",
    seed=7,
    scheme="non_shared",
)
EVENTS: list[Event] = [
    RunStarted(run_id="r1", question="Wo? ✓", team="t", scheme="s", seed=0),
    TurnStarted(turn=1, step=1, node="think", role="plan", emits="thought"),
    Token(turn=1, token_id=5, text="é"),
    TurnFinished(
        turn=1,
        step=1,
        node="think",
        role="plan",
        emits="thought",
        text="I see.",
        finish_reason="stop",
        constrained=False,
        mean_logprob=-0.5,
        usage=FACTS,
    ),
    ToolCalled(step=1, action="Search", tool="offline.search", argument="x"),
    ToolFinished(
        step=1,
        action="Search",
        tool="offline.search",
        text="Nothing.",
        miss=True,
        failure=None,
        error=None,
        attempts=1,
        seconds=0.1,
        facts={"results": ["a", 1, None]},
    ),
    FINISHED,
    FINISHED.model_copy(update={"score": {"em": True}}),
]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.event)
def test_every_event_survives_json(event: Event) -> None:
    line = to_json(event)
    assert "\n" not in line
    assert parse_event(line) == event
    assert parse_event(json.loads(line)) == event


def test_a_score_is_written_only_where_there_is_one() -> None:
    keys = set(json.loads(to_json(FINISHED)))
    promised = {"event", "status", "answer", "steps", "usage", "timing", "tool_health", "run_id", "seed", "scheme"}
    assert promised <= keys
    assert "score" not in keys
    assert "score" in json.loads(to_json(EVENTS[-1]))


@pytest.mark.parametrize("line", ['{"event": "lunch"}', '{"turn": 1}', '{"event": "token", "turn": 1, "more": 2}'])
def test_what_is_no_event_is_refused(line: str) -> None:
    with pytest.raises(ValidationError):
        parse_event(line)
