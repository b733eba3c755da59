"""A finished episode as a recorded trajectory, and how long the fields of a team may be."""

from collections.abc import Iterable

from agentrt.config.flow import Emits
from agentrt.config.team import Team
from agentrt.runtime.result import EpisodeResult
from agentrt.training.examples import Recorded, RecordedSpan


def own_paths(team: Team) -> dict[str, str]:
    """The paths that tell a script which role writes, also where roles have no adapter and share one path."""
    return {role: role for role in team.roles}


def record(team: Team, result: EpisodeResult, taught: Iterable[bool], name: str) -> Recorded:
    """The episode under `name`, which ran with `own_paths`; its authors are the paths that the team itself takes.

    `taught` says of each field that was written, in order, whether it is to be learnt. The question as it was asked is
    what splits go by, wherever the episode is from.
    """
    spans: list[RecordedSpan] = []
    marks = iter(taught)
    end = 0
    for span in result.spans:
        start, end = end, end + len(span.token_ids)
        written = span.path is not None
        author = team.adapter_name(span.author) if written else span.author
        spans.append(RecordedSpan(start, end, author, span.kind, next(marks) if written else True))
    assert next(marks, None) is None, "every field that was written is a span"
    return Recorded(name, result.question, tuple(result.token_ids), tuple(spans))


class FieldLimits:
    """How many tokens each field of a team may have: the fewest of the turns in which a role writes that kind."""

    def __init__(self, team: Team) -> None:
        self._of_role: dict[tuple[str, Emits], int] = {}
        self._of_any: dict[Emits, int] = {}
        for node in team.flow.role_nodes().values():
            limit = node.max_new_tokens or team.roles[node.role].sampling.max_new_tokens
            self._of_role[node.role, node.emits] = min(limit, self._of_role.get((node.role, node.emits), limit))
            self._of_any[node.emits] = min(limit, self._of_any.get(node.emits, limit))

    def of(self, role: str, emits: Emits) -> int:
        """The limit of a field that `role` writes; where it writes none of the kind, of whichever role does."""
        return self._of_role.get((role, emits), self._of_any[emits])
