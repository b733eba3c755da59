"""Model text -> action, or the reason why it is none. Pure; one parser per grammar in `PARSERS`."""

from collections.abc import Callable, Mapping
from typing import Final, Literal, NamedTuple

from agentrt.config.sections import DialectConfig


class Action(NamedTuple):
    """What an agent asked for: `name` chooses the tool, or ends the episode."""

    name: str
    argument: str


class ParseFailure(NamedTuple):
    """Text that is no action; `reason` is written for the model to read."""

    text: str
    reason: str


Parser = Callable[[str, DialectConfig], Action | ParseFailure]


def parse_strict(text: str, dialect: DialectConfig) -> Action | ParseFailure:
    """Read `Name[argument]` and nothing else. The argument may hold brackets and may be empty."""
    name, opened, rest = text.partition(dialect.open)
    if not opened:
        return ParseFailure(text, f"an action is written Name{dialect.open}argument{dialect.close}")
    if name.split() != [name]:
        return ParseFailure(text, f"an action has one word before {dialect.open}")
    argument = rest.removesuffix(dialect.close)
    if argument == rest:
        return ParseFailure(text, f"the argument does not end in {dialect.close}")
    if dialect.end.strip(" ") and dialect.end in argument:
        return ParseFailure(text, "an action is one line")
    return Action(name, argument.strip())


PARSERS: Final[Mapping[Literal["strict"], Parser]] = {"strict": parse_strict}
"""Grammars by name."""
