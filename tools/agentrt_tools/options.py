"""Annotations that say which values an option of a tool takes; `registry` checks them."""

import re
from dataclasses import dataclass
from typing import Literal, Protocol

Style = Literal["react", "autoact"]
"""Whose wording an observation has: ReAct's in this project's form, or AutoAct's, byte for byte (docs/tools.md)."""


class Rule(Protocol):
    """A rule on the value of an option, beyond its type."""

    def fault(self, value: object) -> str | None:
        """What is wrong with `value`, as the end of "k must be ..."; None if nothing is."""
        ...


@dataclass(frozen=True)
class AtLeast:
    """The least value of a number, as in `k: Annotated[int, AtLeast(1)]`."""

    value: int

    def fault(self, value: object) -> str | None:
        return f"at least {self.value}" if isinstance(value, int | float) and value < self.value else None


@dataclass(frozen=True)
class OneOf:
    """One of a few words; taken from a `Literal` annotation."""

    words: tuple[str, ...]

    def fault(self, value: object) -> str | None:
        return None if value in self.words else f"one of {', '.join(self.words)}"


@dataclass(frozen=True)
class Matches:
    """A text of some form; `says` describes it."""

    pattern: str
    says: str

    def fault(self, value: object) -> str | None:
        return None if re.fullmatch(self.pattern, str(value)) else self.says


@dataclass(frozen=True)
class DataFile:
    """The path of a file, relative to the team file's folder; `open_tool` makes it absolute."""

    def fault(self, value: object) -> str | None:
        return None if value else "the path of a file"
