"""Brings an engine's session to where an episode's state is, whoever wrote that state.

A cache depends on who processed which tokens under which scheme. So the recorded turns are run again through their
adapters, with their tokens forced; text is never read again.
"""

import time
from collections.abc import Sequence

from agentrt.model.sampling import Sampling
from agentrt.runtime.state import EpisodeState, RunContext, SpanRecord


def enter(context: RunContext, state: EpisodeState) -> None:
    """Called before every node. Raises TurnCancelledError if the run was cancelled.

    Where a run goes on in its own process, the session is there already. The time this takes is not the episode's.
    """
    context.stop_if_cancelled()
    if context.announce is not None:
        context.announce(state)
        context.announce = None
    began = time.monotonic()
    rebuild(context, state["spans"])
    context.deadline += time.monotonic() - began


def rebuild(context: RunContext, spans: Sequence[SpanRecord]) -> None:
    """Append the spans that the session lacks, in order; those with a path as turns of that adapter."""
    session, at = context.session, 0
    have = len(session.trajectory)
    if have == sum(len(span["token_ids"]) for span in spans):
        return
    for span in spans:
        start, at = at, at + len(span["token_ids"])
        if start < have:
            continue
        token_ids = span["token_ids"]
        if span["path"] is None:
            session.append(token_ids, author=span["author"], kind=span["kind"])
            continue
        sampling = Sampling(max_new_tokens=len(token_ids), forced=token_ids)
        turn = session.turn(span["path"], sampling=sampling, kind=span["kind"])
        context.started(turn)
        try:
            _ = turn.result  # waits
        finally:
            context.turn = None
