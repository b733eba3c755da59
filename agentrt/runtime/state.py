"""An episode's state, which LangGraph checkpoints, apart from the run's context, which it does not.

State is plain JSON types. The context holds what cannot be saved: the engine's session, tools, callbacks, clocks.
"""

import operator
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal, TypedDict

from agentrt.config.team import Emits, Team
from agentrt.errors import TurnCancelledError
from agentrt.runtime.dialect import Renderer
from agentrt.runtime.events import Event
from agentrt.runtime.ports import Session, Turn
from agentrt.runtime.toolbox import Toolbox
from agentrt_tools import Json, ToolHealth


class SpanRecord(TypedDict):
    """One segment of the trajectory. `path` is the adapter that generated it, None for context."""

    author: str
    kind: str
    path: str | None
    text: str
    token_ids: list[int]


class EpisodeState(TypedDict, total=False):
    """Everything a flow remembers. Annotated channels only grow: a node returns what it adds."""

    question: str
    spans: Annotated[list[SpanRecord], operator.add]
    observations: Annotated[list[str], operator.add]
    """Of each tool node that has run, what its tool found as the model read it; empty where it found nothing."""
    verdicts: Annotated[list[str], operator.add]
    calls: Annotated[list[list[str]], operator.add]
    """[action, argument, observation], in order; an answer has an empty observation."""

    role: str
    """Who wrote last; a role's instruction is given when it takes over."""
    field: Emits | Literal[""]
    """The field whose line is still open, empty on a fresh line."""
    tail: str
    """Text behind that field that the trajectory already holds (see FieldText)."""
    action: str
    argument: str
    refusal: str
    """Why the last argument or call is none, for the model to read; empty if it is well formed."""
    retry: str
    """The node that writes again once the model was told; empty if none does."""
    repairs: dict[str, int]
    """How often each repair was needed to read a call (see `agentrt.runtime.actions.Repair`)."""
    answer: str | None
    confidence: float | None
    """In the answer (see `answer_confidence`)."""
    thought_logprobs: list[float]
    """Of the tokens of the thought that was written last."""

    titles: list[str]
    """Titles that observations showed, in order, each once."""
    tool_state: dict[str, Json]

    steps: int
    """Actions chosen."""
    turns: int
    parse_failures: int
    turns_s: float
    tools_s: float
    tool_health: dict[str, Json]
    """See `agentrt_tools.ToolHealth`."""
    usage: dict[str, dict[str, float]]
    """Role -> RoleUsage."""
    status: str
    """Why the episode stopped early (see events.Status); empty while it runs."""
    forced_by: str | None
    """The limit that made the team answer."""


def initial_state(question: str, spans: list[SpanRecord]) -> EpisodeState:
    return EpisodeState(
        question=question,
        spans=spans,
        observations=[],
        verdicts=[],
        calls=[],
        role="",
        field="",
        tail="",
        action="",
        argument="",
        refusal="",
        retry="",
        repairs={},
        answer=None,
        confidence=None,
        thought_logprobs=[],
        titles=[],
        tool_state={},
        steps=0,
        turns=0,
        parse_failures=0,
        turns_s=0.0,
        tools_s=0.0,
        tool_health=ToolHealth().to_json(),
        usage={},
        status="",
        forced_by=None,
    )


@dataclass
class RunContext:
    """What a run's nodes work with. `deadline` is on the monotonic clock, `max_context` in model tokens."""

    team: Team
    session: Session
    renderer: Renderer
    tools: Toolbox
    emit: Callable[[Event], None]
    seed: int
    max_context: int
    deadline: float
    stream_tokens: bool = False
    adapters: Mapping[str, str] = field(default_factory=dict)
    """Role -> adapter, of the roles whose adapter is not the team's in this run."""
    cancelled: threading.Event = field(default_factory=threading.Event)
    turn: Turn | None = None
    """The turn in flight."""
    announce: Callable[[EpisodeState], None] | None = None
    """Called once with the state that a resumed run goes on from."""

    def cancel(self) -> None:
        """End the run at the next token or tool call; safe from any thread."""
        self.cancelled.set()
        turn = self.turn  # the run's own thread may forget it meanwhile
        if turn is not None:
            turn.cancel()

    def stop_if_cancelled(self) -> None:
        """Raises TurnCancelledError. A node that raises leaves no checkpoint, so the run can be resumed before it."""
        if self.cancelled.is_set():
            raise TurnCancelledError("the run was cancelled")

    def started(self, turn: Turn) -> None:
        """Register a turn, so that a cancel from now on, or one that came just before, reaches it."""
        self.turn = turn
        if self.cancelled.is_set():
            turn.cancel()

    def append(self, token_ids: list[int], author: str, kind: str) -> list[SpanRecord]:
        """Add context to the trajectory; returns the span for the state, none for no tokens."""
        if not token_ids:
            return []
        self.session.append(token_ids, author=author, kind=kind)
        text = self.renderer.tokenizer.decode(token_ids)
        return [SpanRecord(author=author, kind=kind, path=None, text=text, token_ids=token_ids)]


def unread_titles(state: EpisodeState) -> list[str]:
    """Titles seen whose page was not read yet."""
    read = state["tool_state"].get("read")
    return [title for title in state["titles"] if not (isinstance(read, list) and title in read)]
