"""From episodes in words to trajectories: the runtime runs them again, the file in the place of models and tools.

So the tokens are those that the team would have had, and a row that the team's flow, actions or limits do not allow is
of another dialect.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final, Self

from agentrt.config.flow import CHOOSES, Emits
from agentrt.config.team import Team
from agentrt.errors import UsageError
from agentrt.runtime.episode import Runtime
from agentrt.runtime.options import CancelToken
from agentrt.runtime.ports import Tokenizer
from agentrt.testing import ScriptedEngine, ScriptError
from agentrt.training.examples import Recorded
from agentrt.training.record import FieldLimits, own_paths, record
from agentrt.training.sources import Skipped
from agentrt.training.told import Told, ToldField, UntellableError
from agentrt_tools import Json, ToolResult
from agentrt_tools.text import shorten

_SHOWN: Final = 60  # characters of a text in a reason


class Retelling:
    """A context manager; one episode at a time."""

    def __init__(self, team: Team, tokenizer: Tokenizer) -> None:
        self._team = team
        self._actions = team.flow.actions()
        self._limits, self._paths = FieldLimits(team), own_paths(team)
        self._left: deque[ToldField] = deque()
        self.titles: tuple[str, ...] = ()
        """What the running episode takes as arguments: the file does not say which titles a tool named, and of these
        the runtime lets a role read those that stand in what was shown."""
        self._taught: list[bool] = []
        self._over = CancelToken()
        self._fault = ""
        self._engine = ScriptedEngine(
            self._write, tokenizer=tokenizer, dialect=team.dialect, adapter_names=tuple(self._paths)
        )
        tools = {name: _ToldTool(name, self) for name in team.tools}
        self._runtime = Runtime(team, engine=self._engine, tools=tools)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._runtime.close()

    def play(self, told: Told) -> Recorded | Skipped:
        """The trajectory, up to its last field, or why the team has none like it."""
        self._left, self._taught = deque(told.fields), []
        self.titles = tuple(dict.fromkeys(field.text for field in told.fields if field.kind == "argument"))
        self._over, self._fault = CancelToken(), ""
        self._engine.sessions.clear()
        try:
            result = self._runtime.run(told.question, cancel=self._over, adapters=self._paths)
            if self._left:
                raise UntellableError(f"the team's episode ends before the file's {_shown(self._left[0])}")
        except UntellableError as error:
            return Skipped(told.id, str(error), told.place)
        except ScriptError as error:
            return Skipped(told.id, f"a field is not what the team allows: {error}", told.place)
        except UsageError as error:
            return Skipped(told.id, f"its question cannot be asked: {error}", told.place)
        if result.status not in ("finished", "cancelled") or result.error or result.parse_failures:
            return Skipped(told.id, result.error or f"its episode ended as {result.status}", told.place)
        if not any(self._taught):
            return Skipped(told.id, "nothing of it is to be learnt", told.place)
        return _up_to_last_field(record(self._team, result, self._taught, told.id))

    def observe(self) -> str:
        """What the file says a tool answered; empty at its end, or where it says something else."""
        if not self._left:
            return ""
        if self._left[0].kind != "observation":
            self._fault = f"no observation stands before the file's {_shown(self._left[0])}"
            return ""
        return self._left.popleft().text

    def _write(self, role: str, emits: Emits, so_far: str) -> str:
        if self._fault:
            raise UntellableError(self._fault)
        if not self._left:
            self._over.cancel()
            return ""
        told = self._left.popleft()
        if told.kind != emits:
            raise UntellableError(f"the team has its {emits} where the file has its {_shown(told)}")
        if told.role and told.role != role:
            raise UntellableError(f"the team's {role} writes what the file gives to {told.role}: {told.text!r}")
        if not told.text:
            raise UntellableError(f"its {emits} is empty")
        if emits in CHOOSES and (name := told.text.partition(self._team.dialect.open)[0]) not in self._actions:
            raise UntellableError(f"the team has no such action: {name!r}")
        limit = self._limits.of(role, emits)
        if len(self._engine.renderer.field(emits, told.text)) > limit:
            raise UntellableError(f"its {emits} is longer than the {limit} tokens that {role} may write: {told.text!r}")
        self._taught.append(told.taught)
        return told.text


class _ToldTool:
    """Stands for every tool of a name."""

    def __init__(self, name: str, retelling: Retelling) -> None:
        self.name = name
        self._retelling = retelling

    def __call__(self, argument: str, state: Mapping[str, Json], *, question: str = "") -> ToolResult:
        return ToolResult(self._retelling.observe(), titles=self._retelling.titles, state=dict(state))


def retell(team: Team, tokenizer: Tokenizer, episodes: Iterable[Told]) -> Iterator[Recorded | Skipped]:
    """A trajectory, or a reason, for each episode, in their order."""
    with Retelling(team, tokenizer) as retelling:
        for told in episodes:
            yield retelling.play(told)


def _up_to_last_field(recorded: Recorded) -> Recorded:
    """Without what the runtime appended once the file had nothing more to tell."""
    end = recorded.fields[-1].end
    spans = tuple(span for span in recorded.spans if span.end <= end)
    return replace(recorded, token_ids=recorded.token_ids[:end], spans=spans)


def _shown(field: ToldField) -> str:
    return f"{field.kind}: {shorten(field.text, _SHOWN)!r}"
