"""Model text -> action, or the reason why it is none. Pure; one parser per grammar in `PARSERS`.

`strict` reads `Name[argument]` and nothing else. `lenient` also reads what adapters write almost right, and names
every repair it made. Neither ever raises.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal, NamedTuple

from agentrt.config.sections import DialectConfig

Repair = Literal["label", "before", "behind", "bracket", "case", "spaces", "none"]
"""label: the action's own label was written again. before, behind: other text stood before the action or behind it,
a trailing dot for one. bracket: a bracket was missing, or another kind. case, spaces: the name in other letters, or
with blanks in or around it. none: the model said that it does nothing."""

NO_ACTION: Final = "None"
"""The name of an action that a model left out in so many words. No tool bears it, and nothing is done."""


class Action(NamedTuple):
    """What an agent asked for: `name` chooses the tool, or ends the episode."""

    name: str
    argument: str
    repairs: tuple[Repair, ...] = ()


class ParseFailure(NamedTuple):
    """Text that is no action; `reason` is written for the model to read."""

    text: str
    reason: str


Parser = Callable[[str, DialectConfig, Sequence[str]], Action | ParseFailure]
"""(text, dialect, names) -> an action of one of `names`; of any name where none are given."""


def parse_strict(text: str, dialect: DialectConfig, names: Sequence[str] = ()) -> Action | ParseFailure:
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
    if names and name not in names:
        return ParseFailure(text, f"there is no action {_short(name)}, write one of {', '.join(names)}")
    return Action(name, argument.strip())


def parse_lenient(text: str, dialect: DialectConfig, names: Sequence[str] = ()) -> Action | ParseFailure:
    """Read an action that is almost well formed. Without `names` any word before a bracket is a name."""
    exact = parse_strict(text.strip(), dialect, names)
    if isinstance(exact, Action) and _balanced(exact.argument, dialect):
        return exact._replace(repairs=("spaces",) if text != text.strip() else ())
    line, repairs = _without_label(" ".join(text.split()), dialect)
    if _NOTHING.fullmatch(line):
        return Action(NO_ACTION, "", (*repairs, "none"))
    found = _bracketed(line, dialect, names) or _unbracketed(line, names)
    if found is not None:
        every = dict.fromkeys([*repairs, *found.repairs])
        return found._replace(repairs=tuple(every))
    return exact if isinstance(exact, Action) else ParseFailure(text, exact.reason)


PARSERS: Final[Mapping[Literal["strict", "lenient"], Parser]] = {"strict": parse_strict, "lenient": parse_lenient}
"""Grammars by name."""

_NOTHING: Final = re.compile(
    r"\W*(?:none|end|done|stop|(?:no|none) (?:further )?(?:action|response)s?(?: (?:is |are )?(?:needed|required))?)\W*"
    r"(?:the (?:simulation|task|question)\b[\w ]*\W*)?",
    re.IGNORECASE,
)
_OTHER_BRACKETS: Final = {"[": "]", "(": ")", "{": "}", "<": ">"}
_MOST_NAME_WORDS: Final = 3
_BEFORE: Final = 200  # characters before a bracket that are looked at


def _without_label(line: str, dialect: DialectConfig) -> tuple[str, list[Repair]]:
    label = dialect.action.strip()
    if label and line.casefold().startswith(label.casefold()):
        return line[len(label) :].strip(), ["label"]
    return line, []


def _bracketed(line: str, dialect: DialectConfig, names: Sequence[str]) -> Action | None:
    """The first `name[` of a name that is known, wherever it stands; the argument up to its bracket, or to the end."""
    pairs = {dialect.open: dialect.close} | {a: b for a, b in _OTHER_BRACKETS.items() if a != dialect.open}
    openers = "|".join(re.escape(opener) for opener in pairs)
    for match in re.finditer(openers, line):
        named = _name_at_end(line[max(0, match.start() - _BEFORE) : match.start()], names)
        if named is None:
            continue
        name, repairs = named
        argument, closed, behind = _argument(line[match.end() :], match[0], pairs[match[0]])
        if not closed or match[0] != dialect.open:
            repairs.append("bracket")
        if behind:
            repairs.append("behind")
        return Action(name, argument.strip(), tuple(repairs))
    return None


def _name_at_end(text: str, names: Sequence[str]) -> tuple[str, list[Repair]] | None:
    """The name that `text` ends in, with the repairs it took; None if it ends in none."""
    words, repairs = text.split(), list[Repair]()
    if text.rstrip() != text:
        repairs.append("spaces")
    if not names:
        if len(words) != 1 or not words[0].isidentifier() or _NOTHING.fullmatch(words[0]):
            return None
        return words[0], repairs
    known = {name.casefold(): name for name in reversed(names)}
    for size in range(1, min(_MOST_NAME_WORDS, len(words)) + 1):
        written = "".join(words[-size:]).lstrip("\"'`*(-:.")
        name = written if written in names else known.get(written.casefold())
        if name is None:
            continue
        if size > 1:
            repairs.append("spaces")
        if written != name:
            repairs.append("case")
        if len(words) > size or written != "".join(words[-size:]):
            repairs.append("before")
        return name, repairs
    return None


def _unbracketed(line: str, names: Sequence[str]) -> Action | None:
    """`Name: argument`, or a name and one more word: `Reflect right`. More words would be a sentence."""
    for name in names:
        if line[: len(name)].casefold() != name.casefold():
            continue
        rest = line[len(name) :]
        colon = rest.lstrip().startswith(":")
        argument = rest.lstrip()[1:].strip() if colon else rest.strip().rstrip(".")
        if argument and (colon or (rest[0].isspace() and len(argument.split()) == 1)):
            case: tuple[Repair, ...] = () if line.startswith(name) else ("case",)
            return Action(name, argument, (*case, "bracket"))
    return None


def _argument(rest: str, opener: str, closer: str) -> tuple[str, bool, str]:
    """The text up to the bracket that closes the first, whether there is one, and the text behind it."""
    depth, at = 1, 0
    for match in re.finditer(f"{re.escape(opener)}|{re.escape(closer)}", rest):
        depth += 1 if match[0] == opener else -1
        if depth == 0:
            return rest[: match.start()], True, rest[match.end() :].strip()
        at = match.end() if match[0] == closer else at
    if at:  # a bracket inside the argument was never closed: the last one closes all
        return rest[: at - len(closer)], True, rest[at:].strip()
    return rest, False, ""


def _balanced(argument: str, dialect: DialectConfig) -> bool:
    """Whether no bracket closes before it opens: else `A[x] and B[y]` would read as one argument."""
    depth = 0
    for match in re.finditer(f"{re.escape(dialect.open)}|{re.escape(dialect.close)}", argument):
        depth += 1 if match[0] == dialect.open else -1
        if depth < 0:
            return False
    return True


def _short(text: str) -> str:
    return text if len(text) <= 40 else text[:39] + "…"
