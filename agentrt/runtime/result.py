"""What an episode came to: the last event, plus everything needed to train on it, score it or look at it."""

from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from agentrt.runtime.events import SCHEMA_VERSION, RoleUsage, RunFinished, Status, Timing
from agentrt.runtime.state import EpisodeState


class ActionRecord(BaseModel):
    """One step. `observation` is None for an answer."""

    model_config = ConfigDict(frozen=True)

    action: str
    argument: str
    observation: str | None


class EpisodeSpan(BaseModel):
    """One segment of the trajectory. `path` is the adapter that generated it (empty: adapters off), None for context;
    `author` is then the role."""

    model_config = ConfigDict(frozen=True)

    author: str
    kind: str
    path: str | None
    text: str
    token_ids: tuple[int, ...]


class EpisodeResult(BaseModel):
    """A finished episode. `spans` hold every token of the trajectory in order; those with a `path` were generated."""

    model_config = ConfigDict(frozen=True)

    schema_version: int = SCHEMA_VERSION
    run_id: str
    question: str
    team: str
    scheme: str
    seed: int
    adapters: dict[str, str] = Field(default_factory=dict)
    """Role -> adapter, of the roles that this run gave another one."""
    status: Status
    answer: str | None
    forced_by: Status | None = None
    """The limit that made the team answer; None if it answered of its own accord, or not at all."""
    confidence: float | None = None
    """How sure the model was of the answer's words, 0 to 1 (see `answer_confidence`); None without an answer."""
    verdicts: tuple[str, ...]
    steps: int
    actions: tuple[ActionRecord, ...]
    usage: dict[str, RoleUsage]
    timing: Timing
    tool_health: dict[str, JsonValue]
    parse_failures: int
    repairs: dict[str, int] = {}
    error: str | None
    score: dict[str, JsonValue] | None = None
    spans: tuple[EpisodeSpan, ...]

    @property
    def token_ids(self) -> list[int]:
        return [token_id for span in self.spans for token_id in span.token_ids]

    @property
    def text(self) -> str:
        """The whole trajectory as text."""
        return "".join(span.text for span in self.spans)

    def event(self) -> RunFinished:
        """The result as the last event of its run."""
        names = RunFinished.model_fields.keys() & EpisodeResult.model_fields.keys()
        return RunFinished(**{name: getattr(self, name) for name in names})


def result_of(
    state: EpisodeState,
    *,
    run_id: str,
    team: str,
    scheme: str,
    seed: int,
    adapters: Mapping[str, str],
    total_s: float,
    error: str | None,
) -> EpisodeResult:
    """Read the result off the last state of an episode."""
    actions = [
        {"action": action, "argument": argument, "observation": observation or None}
        for action, argument, observation in state["calls"]
    ]
    same = (
        "question",
        "answer",
        "confidence",
        "verdicts",
        "steps",
        "usage",
        "tool_health",
        "parse_failures",
        "repairs",
        "forced_by",
    )
    return EpisodeResult.model_validate(
        {
            **{name: value for name, value in state.items() if name in same},
            "run_id": run_id,
            "team": team,
            "scheme": scheme,
            "seed": seed,
            "adapters": dict(adapters),
            "status": "failed" if error is not None else state["status"] or "finished",
            "actions": actions,
            "timing": Timing(total_s=total_s, turns_s=state["turns_s"], tools_s=state["tools_s"]),
            "error": error,
            "spans": state["spans"],
        }
    )
