"""Runs a recorded episode again and compares what came out, token by token."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from agentrt.cli.output import Output
from agentrt.errors import DataError
from agentrt.runtime.episode import Runtime
from agentrt.runtime.result import EpisodeResult, EpisodeSpan
from agentrt.runtime.runlog import RESULT_FILE, read_result
from agentrt.runtime.saved import FoundRun

DIFFERS: Final = 1


def verify_run(runtime: Runtime, found: FoundRun, out: Output) -> int:
    """0 where every token is the same, else 1. Raises DataError where the run has no result to compare with."""
    recorded = _recorded(found)
    saved = found.saved
    again = runtime.run(saved.question, seed=saved.seed, adapters=saved.adapters)
    at = first_difference(recorded.token_ids, again.token_ids)
    told = {"event": "verify_finished", "run_id": saved.run_id, "identical": at is None}
    out.record({**told, "tokens": len(recorded.token_ids), "first_difference": at, "status": again.status})
    if at is None:
        out.result(f"identical: {len(recorded.token_ids)} tokens of run {saved.run_id}", style="bold")
        return 0
    was, now = (_span_at(result.spans, at) for result in (recorded, again))
    out.result(f"run {saved.run_id} differs from token {at} on", style="bold red")
    out.say(f"recorded: {was}\nnow:      {now}")
    return DIFFERS


def first_difference(one: Sequence[int], other: Sequence[int]) -> int | None:
    """The first position at which two lists differ, None if they are equal."""
    for at, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return at
    return None if len(one) == len(other) else min(len(one), len(other))


def _recorded(found: FoundRun) -> EpisodeResult:
    result = read_result(found.folder)
    if result is None:
        missing = f"{found.folder / RESULT_FILE} is missing: the run has not ended"
        raise DataError(f"{missing}; go on with agentrt resume {found.folder}")
    return result


def _span_at(spans: Sequence[EpisodeSpan], at: int) -> str:
    starts = [0]
    for span in spans:
        starts.append(starts[-1] + len(span.token_ids))
    for span, (start, end) in zip(spans, pairwise(starts), strict=True):
        if start <= at < end:
            return f"{span.author} {span.kind} {span.text!r}"
    return "nothing: it has ended"
