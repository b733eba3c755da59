"""What happens in an episode, as typed events: the same objects in Python, in `events.jsonl` and in `--json`.

Every event is one JSON object whose "event" key names its class. Times are seconds, sizes bytes.
"""

from collections.abc import Mapping
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter

from agentrt.config.flow import Emits
from agentrt.runtime.ports import FinishReason

SCHEMA_VERSION: Final = 1
"""Raised when a key changes its meaning or goes; new keys do not raise it."""

Status = Literal[
    "finished",
    "forced",
    "loop",
    "limit:steps",
    "limit:turns",
    "limit:tokens",
    "limit:context",
    "limit:time",
    "limit:tool_errors",
    "malformed",
    "cancelled",
    "failed",
]
"""How an episode ended; only "finished" is an answer the team stands by. "forced" is one it was made to give."""

ANSWERED: Final = ("finished", "forced")


class _Event(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class TurnFacts(_Event):
    """What one turn cost (see `agentrt.runtime.ports.TurnUsage`)."""

    context_tokens: int
    reused_tokens: int
    recomputed_tokens: int
    reconstructed_tokens: int = 0
    """Left out by logs of before it was counted apart: there it is part of `recomputed_tokens`."""
    generated_tokens: int
    ttft_s: float
    submit_to_first_token_s: float
    decode_tokens_per_s: float
    kv_bytes: int


class RoleUsage(_Event):
    """A role's turns of one episode added up; TTFT is the mean, the decode rate pooled, KV bytes the peak."""

    turns: int = 0
    reused_tokens: int = 0
    recomputed_tokens: int = 0
    reconstructed_tokens: int = 0
    generated_tokens: int = 0
    ttft_s: float = 0.0
    decode_s: float = 0.0
    decode_tokens_per_s: float = 0.0
    kv_bytes: int = 0


class Timing(_Event):
    """Wall-clock seconds of the episode, of its turns and of its tool calls."""

    total_s: float
    turns_s: float
    tools_s: float


class RunStarted(_Event):
    event: Literal["run_started"] = "run_started"
    run_id: str
    question: str
    team: str
    scheme: str
    seed: int
    adapters: dict[str, str] = Field(default_factory=dict)
    """Role -> adapter, of the roles that this run gave another one."""
    schema_version: int = SCHEMA_VERSION


class RunResumed(_Event):
    """A run goes on in another process, or as a fork of another run. Of the events before, those of the first `turns`
    turns and `observations` tool calls stand; what came after them in the log was lost, and happens again."""

    event: Literal["run_resumed"] = "run_resumed"
    run_id: str
    question: str
    team: str
    scheme: str
    seed: int
    adapters: dict[str, str] = Field(default_factory=dict)
    turns: int
    observations: int
    forked_from: str | None = None
    """The run whose turns these are, if it is another one."""


class TurnStarted(_Event):
    event: Literal["turn_started"] = "turn_started"
    turn: int
    step: int
    node: str
    role: str
    emits: Emits


class Token(_Event):
    """One sampled token. `text` is what became readable with it: empty inside a character of several tokens."""

    event: Literal["token"] = "token"
    turn: int
    token_id: int
    text: str


class TurnFinished(_Event):
    event: Literal["turn_finished"] = "turn_finished"
    turn: int
    step: int
    node: str
    role: str
    emits: Emits
    text: str
    finish_reason: FinishReason
    constrained: bool
    mean_logprob: float | None
    """Of the field's tokens, under the model's own distribution; None for an empty field."""
    repairs: tuple[str, ...] = ()
    """What a lenient parser put right in a whole action line."""
    usage: TurnFacts


class ToolCalled(_Event):
    event: Literal["tool_called"] = "tool_called"
    step: int
    action: str
    tool: str
    argument: str


class ToolFinished(_Event):
    """`text` is the observation as the model reads it. `miss`: the model was told that nothing was found.
    `failure`: the kind of a tool failure and `error` what it said, None if the tool did its work. `attempts` is 0
    where no tool was called, because the action was malformed."""

    event: Literal["tool_finished"] = "tool_finished"
    step: int
    action: str
    tool: str
    text: str
    miss: bool
    failure: str | None
    error: str | None
    attempts: int
    seconds: float
    facts: dict[str, JsonValue] = Field(default_factory=dict)
    tool_health: dict[str, JsonValue] = Field(default_factory=dict)
    """The episode's counters with this call."""


class RunFinished(_Event):
    """The last event of an episode; `score` is there only where a gold answer is known."""

    event: Literal["run_finished"] = "run_finished"
    status: Status
    answer: str | None
    score: dict[str, JsonValue] | None = None
    steps: int
    usage: dict[str, RoleUsage]
    timing: Timing
    tool_health: dict[str, JsonValue]
    run_id: str
    seed: int
    scheme: str
    forced_by: Status | None = None
    """The limit that made the team answer, of a "forced" one."""
    confidence: float | None = None
    """How sure the model was of the answer's words, 0 to 1: the geometric mean of their tokens' probabilities in the
    thought that led to the answer, or in its own field where that thought does not say it."""
    parse_failures: int = 0
    """Arguments that did not end by themselves, and action lines that could not be read."""
    repairs: dict[str, int] = Field(default_factory=dict)
    """How often each repair was needed to read an action line."""
    error: str | None = None


Event = Annotated[
    RunStarted | RunResumed | TurnStarted | Token | TurnFinished | ToolCalled | ToolFinished | RunFinished,
    Field(discriminator="event"),
]

_ADAPTER: Final[TypeAdapter[Event]] = TypeAdapter(Event)


def parse_event(line: str | bytes | Mapping[str, JsonValue]) -> Event:
    """Read an event back from its JSON line or object. Raises pydantic's ValidationError (a ValueError)."""
    if isinstance(line, str | bytes):
        return _ADAPTER.validate_json(line)
    return _ADAPTER.validate_python(line)


def to_json(event: BaseModel) -> str:
    """One line of JSON. A score that is not known is left out."""
    left_out = {"score"} if isinstance(event, RunFinished) and event.score is None else None
    return event.model_dump_json(exclude=left_out)
