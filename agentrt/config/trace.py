"""A trace file: the calls of a controlled replay. Lengths only; the token ids are drawn when it is replayed."""

from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Discriminator, Field, Tag, model_validator

from agentrt.builtin import configs_dir
from agentrt.config.problems import suggest, validate
from agentrt.config.strict import OTHER, TEXT, Name, PositiveInt, Strict, Text, TextOrOther
from agentrt.config.yaml import read_yaml
from agentrt.errors import UsageError

NEXT: Final = "next"
"""`agent: next`: the agents take turns."""

Context = Annotated[Annotated[Literal["C"], Tag(TEXT)] | Annotated[PositiveInt, Tag(OTHER)], TextOrOther]
"""Tokens, or `C`: the context length that the replay is run for."""

Targets = Annotated[str, Field(pattern=r"^[qkvogud]+$")]
"""Projections by letter: q, k, v, o, gate, up, down."""


class CallConfig(Strict):
    """One call: `agent` reads `context` new tokens, then generates `decode`. `tool`: a tool is called after it."""

    agent: Name
    context: Context
    decode: PositiveInt
    tool: bool = False


class RepeatConfig(Strict):
    """`calls`, `repeat` times over."""

    repeat: PositiveInt
    calls: Annotated[tuple[CallConfig, ...], Field(min_length=1)]


_CALL: Final = "as call"
_REPEAT: Final = "as repeat"


def _kind(value: Any) -> str:
    return _REPEAT if isinstance(value, dict) and "repeat" in value else _CALL


Item = Annotated[Annotated[CallConfig, Tag(_CALL)] | Annotated[RepeatConfig, Tag(_REPEAT)], Discriminator(_kind)]


class TraceConfig(Strict):
    """A whole trace. Who acts: `agents` by name, or `crews`, numbers of agents to run it for. `ranks`: run it with
    random adapters of each of these ranks. `targets`: what random adapters are on, in place of what is asked for.
    `contexts`: values of C where none are asked for."""

    version: Literal[1]
    about: Text
    agents: tuple[Name, ...] = ()
    crews: tuple[PositiveInt, ...] = ()
    ranks: tuple[PositiveInt, ...] = ()
    targets: Targets | None = None
    contexts: Annotated[tuple[PositiveInt, ...], Field(min_length=1)]
    calls_from: Name | None = None
    calls: tuple[Item, ...] = ()

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.targets is not None and not (self.ranks or self.crews):
            raise ValueError("targets are those of random adapters: say for which ranks or crews the trace is run")
        if self.calls_from is not None:
            if self.calls or self.agents or self.crews:
                raise ValueError("calls_from takes agents and calls of another trace: leave out agents, crews, calls")
            return self
        if bool(self.agents) == bool(self.crews):
            raise ValueError("say who acts: either `agents: [name, ...]` or `crews: [4, 8]`")
        if not self.calls:
            raise ValueError("calls must not be empty")
        for call in self.flat_calls():
            if call.agent != NEXT and call.agent not in self.agents:
                known = suggest(call.agent, [*self.agents, NEXT], "agents")
                raise ValueError(f"agent {call.agent!r} of a call does not act in this trace{known}")
        return self

    def flat_calls(self) -> list[CallConfig]:
        """All calls in order, repetitions written out."""
        calls: list[CallConfig] = []
        for item in self.calls:
            calls.extend([item] if isinstance(item, CallConfig) else item.calls * item.repeat)
        return calls

    @classmethod
    def load(cls, name_or_path: str | Path) -> Self:
        """A built-in trace by name, or a trace file by path.

        Raises ConfigError with every problem of the file; UsageError for a name that is neither.
        """
        folder = configs_dir() / "traces"
        known = sorted(file.stem for file in folder.glob("*.yaml"))
        path = folder / f"{name_or_path}.yaml" if str(name_or_path) in known else Path(name_or_path)
        if not path.is_file():
            tail = suggest(str(name_or_path), known, "built-in traces")
            raise UsageError(f"{name_or_path} is neither a trace file nor a built-in trace{tail}")
        trace = validate(cls, read_yaml(path))
        if trace.calls_from is None:
            return trace
        source = cls.load(trace.calls_from)
        update = {"agents": source.agents, "crews": source.crews, "calls": source.calls, "calls_from": None}
        return trace.model_copy(update=update)
