"""What a role learns as activated LoRA: its adapter acts from its last invocation on, and everything before is base.

A trajectory invokes a role each time it takes over, and what it wrote then is base again for the next time. So each
takeover is an example of its own.
"""

from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

from agentrt.config.team import Team
from agentrt.errors import ConfigError, DataError, Problem
from agentrt.runtime.dialect import Renderer
from agentrt.runtime.ports import Tokenizer
from agentrt.schemes.alora import last_start
from agentrt.training.examples import Example, Recorded, RecordedSpan, taught_field


class _Turn(NamedTuple):
    invoked_at: int
    span: RecordedSpan


def invocations(team: Team, tokenizer: Tokenizer, roles: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """The tokens that invoke each role: its instruction, which the runtime gives whenever the role takes over.

    Raises ConfigError for roles without one.
    """
    lacking: list[Problem] = [
        team.problem(
            ("roles", role),
            f"activated LoRA begins at the role's instruction, and {role!r} has none; add `instruction:` to it",
            on_key=True,
        )
        for role in roles
        if not team.roles[role].instruction
    ]
    if lacking:
        raise ConfigError(lacking)
    renderer = Renderer(team.dialect, tokenizer)
    return {role: tuple(renderer.instruction(team.roles[role].instruction or "")) for role in roles}


def activated_examples(recorded: Recorded, role: str, invocation: Sequence[int]) -> list[Example]:
    """One example for each time that `role` takes over and is to learn what it writes.

    `own_rows` run from the invocation on; all before is processed with adapters off. Raises DataError where a turn of
    the role has no invocation before it.
    """
    turns: list[_Turn] = []
    for span in recorded.fields:
        if span.author != role:
            continue
        at = last_start(recorded.token_ids[: span.start], invocation)
        if at is None:
            raise DataError(
                f"{recorded.id}: nothing invokes {role!r} before position {span.start}; its instruction has changed "
                "since the trajectories were derived, derive them again"
            )
        turns.append(_Turn(at, span))
    examples = []
    for number, (at, group) in enumerate(groupby(turns, key=lambda turn: turn.invoked_at)):
        fields = tuple(taught_field(turn.span) for turn in group if turn.span.taught)
        if not fields:
            continue
        end = fields[-1].end
        examples.append(
            Example(
                f"{recorded.id}#{number}",
                recorded.question_id,
                recorded.token_ids[:end],
                fields,
                tuple(range(at, end - 1)),
                (at,) * (end - 1 - at),
            )
        )
    return examples
