"""Recorded episodes of agents, JSONL: one a row, with `question` and `turns`; a turn names its role.

A plan turn has a thought and the name of an action, an action turn its input and the observation, a reflect turn a
thought and the verdict as input. What a turn gives is decided by what the team's role of that name writes.
"""

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from agentrt.config.flow import FINISH, Emits
from agentrt.config.team import Team
from agentrt.questions.question import pose_choice
from agentrt.training.sources import Skipped
from agentrt.training.told import Told, ToldField, UntellableError, read_told
from agentrt_tools import one_line


class _Turn(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")

    role: str
    thought: str = ""
    action: str = ""
    action_input: str = ""
    observation: str = ""
    well_formed: bool = True
    action_text: str = ""


class _Row(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")

    question: Annotated[str, Field(min_length=1)]
    turns: Annotated[list[_Turn], Field(min_length=1)]
    id: str = ""
    choices: list[str] | None = None
    correct: bool = True
    clean: bool = True


def read_trajectories(path: Path, team: Team) -> tuple[list[Told], list[Skipped]]:
    """Episodes with the right answer whose every action is well formed, and what was left out, each with its place.

    Action names are taken in the team's spelling where they differ in case alone. Raises UsageError for a file that
    cannot be read.
    """

    def tell(row: _Row, name: str, place: str) -> Told:
        question = pose_choice(row.question, row.choices) if row.choices else row.question
        return Told(name, question, tuple(_fields(row, team)), place)

    return read_told(path, _Row, tell)


def _fields(row: _Row, team: Team) -> list[ToldField]:
    """Raises UntellableError."""
    if not row.correct:
        raise UntellableError("its answer is not the gold answer")
    d, spelled = team.dialect, {name.lower(): name for name in team.flow.actions()}
    fields: list[ToldField] = []
    for turn in row.turns:
        writes = {node.emits for node in team.flow.role_nodes().values() if node.role == turn.role}
        if not writes:
            raise UntellableError(f"the team has no role that writes: {turn.role!r}")
        if not turn.well_formed:
            raise UntellableError(f"an action is not well formed: {turn.action_text or turn.action!r}")
        action, given = spelled.get(turn.action.lower(), turn.action), one_line(turn.action_input)
        texts: list[tuple[Emits, str]] = [
            ("thought", one_line(turn.thought)),
            ("action", action),
            ("argument", given),
            ("call", f"{action}{d.open}{given}{d.close}"),
            ("verdict", given),
        ]
        fields += [ToldField(kind, text, turn.role) for kind, text in texts if kind in writes]
        if turn.observation and action != FINISH and writes & {"argument", "call"}:
            fields.append(ToldField("observation", turn.observation))
    if not row.clean:
        raise UntellableError("it is marked as not clean")
    return fields
