"""A finished episode as a recorded trajectory, and how long the fields of a team may be."""

from collections.abc import Iterable

from agentrt.config.flow import Emits
from agentrt.config.team import Team
from agentrt.runtime.result import EpisodeResult
from agentrt.training.examples import Recorded, RecordedSpan


def record(result: EpisodeResult, taught: Iterable[bool], name: str, question_id: str) -> Recorded:
    """The episode under `name`; `taught` says of each field that was written, in order, whether it is to be learnt."""
    spans: list[RecordedSpan] = []
    marks = iter(taught)
    end = 0
    for span in result.spans:
        start, end = end, end + len(span.token_ids)
        written = span.path is not None
        spans.append(RecordedSpan(start, end, span.author, span.kind, next(marks) if written else True))
    assert next(marks, None) is None, "every field that was written is a span"
    return Recorded(name, question_id, tuple(result.token_ids), tuple(spans))


def field_limits(team: Team) -> dict[Emits, int]:
    """The tightest token limit of each kind of field."""
    limits: dict[Emits, int] = {}
    for node in team.flow.role_nodes().values():
        limit = node.max_new_tokens or team.roles[node.role].sampling.max_new_tokens
        limits[node.emits] = min(limit, limits.get(node.emits, limit))
    return limits
