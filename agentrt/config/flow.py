"""The flow of a team file: which role writes which field, and what follows. Knows nothing of LangGraph."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Discriminator, Field, Tag, model_validator

from agentrt.config.strict import OTHER, TEXT, Name, PositiveInt, Strict, Text, TextOrOther

END: Final = "end"
"""The reserved final node."""

DEFAULT: Final = "default"
"""The key of a `next` mapping that covers every other value."""

FINISH: Final = "Finish"
"""The one action that is no tool: its argument is the answer."""

VERDICT_NAME: Final = "Reflect"
"""The action name under which a verdict is written (AutoAct, Qiao et al., 2024)."""

Emits = Literal["thought", "action", "argument", "verdict", "call"]
"""`call` is a whole action line, `Name[argument]`, for adapters that were trained to write one."""

Grammar = Literal["strict", "lenient"]
OnFail = Literal["observe", "retry", "fail"]

CHOOSES: Final = ("action", "call")
"""Fields that name an action."""

Words = Annotated[tuple[Text, ...], Field(min_length=1)]
Choices = Annotated[
    Annotated[Literal["seen_titles", "options"], Tag(TEXT)] | Annotated[Words, Tag(OTHER)],
    TextOrOther,
]
"""Some strings; or titles that were seen and not read; or the letters of a multiple-choice question's options."""

Next = Annotated[Annotated[Text, Tag(TEXT)] | Annotated[Mapping[Text, Text], Tag(OTHER)], TextOrOther]


Quoted = Literal["observations", "question"]
"""What a span may be taken from."""


Quotables = Annotated[Annotated[Quoted, Tag(TEXT)] | Annotated[tuple[Quoted, ...], Tag(OTHER)], TextOrOther]


class ConstrainConfig(Strict):
    """What a text may be: one of some choices, or a span of the trajectory (`also` adds fixed strings).

    `max_words` is of a span; 12 where it is not given, enough for a short answer.
    """

    choices: Choices | None = None
    span_of: Quotables | None = None
    max_words: PositiveInt | None = None
    also: tuple[Text, ...] = ()

    @model_validator(mode="after")
    def _one_rule(self) -> Self:
        if (self.choices is None) == (self.span_of is None):
            raise ValueError("write either `choices:` or `span_of:`")
        if self.max_words is not None and self.span_of is None:
            raise ValueError("`max_words:` is for `span_of:`")
        if self.span_of == ():
            raise ValueError("`span_of:` is empty; name `observations`, `question` or both")
        return self

    @property
    def quoted(self) -> tuple[Quoted, ...]:
        """What a span may be taken from; nothing for choices."""
        if self.span_of is None:
            return ()
        return (self.span_of,) if isinstance(self.span_of, str) else self.span_of


class RoleNode(Strict):
    """A role writes one field. `constrain` is for arguments, by the action chosen before. `after` is for thoughts:
    behind these words one ends with such a text and a full stop.

    `parser` and `on_fail` are for calls: how a line is read, and what follows one that cannot be. `observe`: the model
    is told why, and the flow goes on; `retry`: it is told, and writes another line; `fail`: the episode ends.
    """

    role: Text
    emits: Emits
    choices: Choices | None = None
    constrain: Mapping[Text, ConstrainConfig] = Field(default_factory=dict)
    after: Mapping[Text, ConstrainConfig] = Field(default_factory=dict)
    parser: Grammar | None = None
    on_fail: OnFail | None = None
    max_new_tokens: PositiveInt | None = None
    next: Next

    def follow(self, value: str) -> str:
        """The node after this one, given the value that decides (the action, or the verdict)."""
        if isinstance(self.next, str):
            return self.next
        return self.next.get(value) or self.next[DEFAULT]

    def targets(self) -> tuple[str, ...]:
        return (self.next,) if isinstance(self.next, str) else tuple(self.next.values())


class ToolNode(Strict):
    """Calls the tool of the action chosen before, and appends its observation."""

    tool: Literal[True]
    next: Text

    def targets(self) -> tuple[str, ...]:
        return (self.next,)


def _kind_of_node(value: Any) -> str:
    if isinstance(value, ToolNode) or (isinstance(value, dict) and "tool" in value):
        return "tool node"
    return "role node"


Node = Annotated[
    Annotated[RoleNode, Tag("role node")] | Annotated[ToolNode, Tag("tool node")], Discriminator(_kind_of_node)
]


class FlowConfig(Strict):
    """Nodes by name; `start` names the first, `end` is reserved."""

    start: Text
    nodes: Annotated[Mapping[Name, Node], Field(min_length=1)]

    def role_nodes(self) -> dict[str, RoleNode]:
        return {name: node for name, node in self.nodes.items() if isinstance(node, RoleNode)}

    def actions(self) -> dict[str, None]:
        """Every action that some node may choose or call, in the order of the file."""
        return {
            choice: None
            for node in self.role_nodes().values()
            if node.emits in CHOOSES and isinstance(node.choices, tuple)
            for choice in node.choices
        }
