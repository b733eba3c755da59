"""What a tool is: it reads an argument and the episode's tool state, and returns text for the model.

Two ways of not succeeding are kept apart: a `ToolResult` with `miss` set tells the model, which may try
something else; `ToolFailed` tells the program, which counts it and never hides it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

from agentrt_tools.text import one_line

Json: TypeAlias = "str | int | float | bool | list[Json] | dict[str, Json] | None"

FailureKind = Literal["auth", "quota", "rate_limited", "timeout", "network", "bad_response", "crash"]
"""Why a tool failed. `crash` is an exception the tool did not mean to raise."""


@dataclass(frozen=True)
class ToolResult:
    """The outcome of a call that the model is told about.

    `text` is one line. `facts` is for the log. `state` is the whole tool state of the episode after the
    call, plain JSON; tools of one episode share it and keep keys they do not know.
    """

    text: str
    facts: Mapping[str, Json] = field(default_factory=dict)
    state: Mapping[str, Json] = field(default_factory=dict)
    titles: tuple[str, ...] = ()
    """Titles listed or mentioned in `text` that could be read next, in the order shown, each once."""
    miss: bool = False
    """Nothing was found, or the argument was of no use: `text` says so."""


class ToolFailed(Exception):  # noqa: N818 - a fact about the call, named as the event log names it
    """The tool could not do its work. `hint` says what the user can do; no message holds a secret.

    A message is made one line without control characters, since a service or an exception may have written it.
    `retryable` is for failures that may pass by themselves; `retry_after_s` is the wait the service asked for.
    `told` is what the model reads in place of an observation, where its adapter has learned a text for that.
    """

    def __init__(
        self,
        kind: FailureKind,
        message: str,
        *,
        retryable: bool = False,
        hint: str = "",
        retry_after_s: float | None = None,
        told: str = "",
    ) -> None:
        self.message = one_line(message)
        super().__init__(self.message)
        self.kind: FailureKind = kind
        self.retryable = retryable
        self.hint = hint
        self.retry_after_s = retry_after_s
        self.told = told

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}" + (f" ({self.hint})" if self.hint else "")


class Tool(Protocol):
    """A callable that several threads may call at once; everything it remembers is in `state`."""

    @property
    def name(self) -> str:
        """The registry name, e.g. "offline.search"."""
        ...

    def __call__(self, argument: str, state: Mapping[str, Json], *, question: str = "") -> ToolResult:
        """Run the tool. `question` is the episode's, for tools that rank by it. Raises ToolFailed."""
        ...
