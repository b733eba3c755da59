"""Examples of one role as text, JSONL: `input`, what stands before, and `output`, what the role writes then.

Both are text of the team's own dialect: the whole episode up to the output, so that the runtime can have its tokens.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from agentrt.config.flow import VERDICT_NAME, Emits
from agentrt.config.sections import DialectConfig
from agentrt.config.team import Team
from agentrt.training.sources import Skipped
from agentrt.training.told import Told, ToldField, UntellableError, read_told
from agentrt_tools import one_line
from agentrt_tools.text import shorten

_SHOWN = 60  # characters of a line in a reason


class _Pair(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")

    input: Annotated[str, Field(min_length=1)]
    output: Annotated[str, Field(min_length=1)]
    id: str = ""


def read_pairs(path: Path, role: str, team: Team) -> tuple[list[Told], list[Skipped]]:
    """Episodes of which `role` is to learn the output alone, and what was left out, each with its place.

    Raises UsageError for a file that cannot be read.
    """

    def tell(pair: _Pair, name: str, place: str) -> Told:
        question, fields = read_episode(pair.input, pair.output, role, team)
        return Told(name, question, fields, place)

    return read_told(path, _Pair, tell)


def read_episode(before: str, output: str, role: str, team: Team) -> tuple[str, tuple[ToldField, ...]]:
    """The question and the fields of an episode's text; those in `output` are `role`'s and taught, no others are.

    Raises UntellableError where the text is not of the team's dialect.
    """
    d = team.dialect
    labels = (d.question, d.thought, d.action, d.observation)
    if output.lstrip().startswith(labels) and not before.endswith(d.end):
        before = before.rstrip() + d.end
    text = before + output
    start = text.find(d.question) if text.startswith(d.question) else text.find(d.end + d.question) + len(d.end)
    if not text[start:].startswith(d.question):
        raise UntellableError("no question stands in its input")
    if text[:start].strip() not in ("", team.preamble.strip()):
        raise UntellableError(f"its preamble is not the team's: {shorten(text[:start], _SHOWN)!r}")
    instructions = {one_line(each.instruction) for each in team.roles.values() if each.instruction}
    calls = any(node.emits == "call" for node in team.flow.role_nodes().values())

    question, fields, at = "", list[ToldField](), start
    border = len(before.rstrip())
    for line in text[start:].split(d.end):
        end = at + len(line)
        if not question:
            question = one_line(line.removeprefix(d.question))
        elif line.strip() and one_line(line) not in instructions:
            for told, place in _fields(line, d, calls=calls):
                if place < border - at < place + len(told.text):
                    raise UntellableError(f"its output begins inside a {told.kind}: {shorten(told.text, _SHOWN)!r}")
                taught = at + place >= border
                fields.append(told._replace(role=role, taught=True) if taught else told._replace(taught=False))
        at = end + len(d.end)
    if fields and fields[-1].kind == "observation":
        raise UntellableError("its output ends in an observation, which no role writes")
    return question, tuple(fields)


def _fields(line: str, d: DialectConfig, *, calls: bool) -> Iterator[tuple[ToldField, int]]:
    """The fields of a line, each with the place where its text begins."""

    def field(kind: Emits, start: int, end: int) -> tuple[ToldField, int]:
        inner = line[start:end]
        return ToldField(kind, inner.strip()), start + len(inner) - len(inner.lstrip())

    if line.startswith(d.thought):
        yield field("thought", len(d.thought), len(line))
        return
    if line.startswith(d.observation):
        yield ToldField("observation", line.removeprefix(d.observation).strip()), 0
        return
    if not line.startswith(d.action):
        raise UntellableError(f"a line begins with none of the team's labels: {shorten(line, _SHOWN)!r}")
    start, opened = len(d.action), line.find(d.open, len(d.action))
    if calls:
        yield field("call", start, len(line))
        return
    closed = line.rfind(d.close) if line.rstrip().endswith(d.close) else len(line)
    if opened < 0:
        yield field("action", start, len(line))
    elif line[start:opened].strip() == VERDICT_NAME:
        yield field("verdict", opened + len(d.open), closed)
    else:
        yield field("action", start, opened)
        if line[opened + len(d.open) : closed].strip():
            yield field("argument", opened + len(d.open), closed)
