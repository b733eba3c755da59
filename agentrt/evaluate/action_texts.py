"""How well recorded agents' action lines can be read: the texts of trajectory files, through every grammar.

A row of such a file is one episode with `turns`; a turn has a role, an action, and its input or its raw text.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentrt.config.sections import DialectConfig
from agentrt.errors import DataError
from agentrt.questions.rows import read_rows
from agentrt.runtime.actions import NO_ACTION, PARSERS, Action


@dataclass
class ParseCounts:
    """Of `texts` action lines, how many are well formed (`strict`) and how many can be read (`lenient`); `nothing` of
    the latter say that nothing is done. `repairs` counts each kind; a text may need several."""

    texts: int = 0
    strict: int = 0
    lenient: int = 0
    nothing: int = 0
    repairs: Counter[str] = field(default_factory=Counter)

    def add(self, other: "ParseCounts") -> None:
        self.texts += other.texts
        self.strict += other.strict
        self.lenient += other.lenient
        self.nothing += other.nothing
        self.repairs.update(other.repairs)


def count_file(path: Path) -> ParseCounts:
    """Parse every action text of a file. Names that may be called are those of its well-formed actions.

    Raises DataError with file:line.
    """
    rows = list(_turns(path))
    names = sorted({turn["action"] for turns in rows for turn in turns if turn.get("well_formed")})
    counts, dialect = ParseCounts(), DialectConfig()
    for text in (text for turns in rows for text in action_texts(turns)):
        counts.texts += 1
        counts.strict += isinstance(PARSERS["strict"](text, dialect, names), Action)
        lenient = PARSERS["lenient"](text, dialect, names)
        if isinstance(lenient, Action):
            counts.lenient += 1
            counts.nothing += lenient.name == NO_ACTION
            counts.repairs.update(lenient.repairs)
    return counts


def action_texts(turns: list[dict[str, Any]]) -> Iterator[str]:
    """The action lines of an episode, one a step, as they were written.

    A step is a plan turn that names an action and an action turn with its input, or one turn with the whole line.
    """
    for turn, following in zip(turns, [*turns[1:], None], strict=True):
        if turn["role"] != "plan":
            yield turn.get("action_text") or f"{turn['action']}[{turn['action_input']}]"
        elif following is None or following["role"] != "action":
            yield turn["action"]


def _turns(path: Path) -> Iterator[list[dict[str, Any]]]:
    for row in read_rows(path):
        value = row.value if isinstance(row.value, dict) else {}
        try:
            turns = value["turns"]
            for turn in turns:
                _ = turn["role"], turn["action"], turn["action_input"]
        except (KeyError, TypeError) as error:
            expected = '{"turns": [{"role": "plan", "action": "…", "action_input": "…"}]}'
            raise DataError(f"{row.place}: not a trajectory ({error}); expected {expected}") from None
        yield turns
