"""Which passes run in the next step. Pure bookkeeping: no tensors, no clock."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from agentrt.engine.work import SessionWork, TurnWork
from agentrt.step import Pass


@dataclass(frozen=True)
class Job:
    """One pass of the next step: for a turn, or (turn None) a pending pass of a session."""

    run: Pass
    session: SessionWork
    turn: TurnWork | None
    completes: bool
    """The pass ends here; otherwise it was cut and its rest is still queued."""
    riding: bool = False
    """Work of the scheme's own that is in no queue: it runs beside the turn's decode step."""

    @property
    def decodes(self) -> bool:
        """Once it has run: it gave its turn one more token, not the first nor the last."""
        return self.turn is not None and self.session.turn is self.turn and len(self.turn.token_ids) > 1


class Scheduler:
    """Packs at most `max_step_tokens` rows a step, in this order:

    1. one token of every decoding turn, so that nobody's stream stalls, and beside them at most `ride_rows` rows
       that their schemes offer;
    2. prefill chunks of turns that wait for their first token, and pending passes that a waiting turn needs, the oldest
       turn first, and last what somebody waits for who has no turn; beside decoding turns, as long as the whole step
       has at most `chunk_tokens`;
    3. other pending passes, `chunk_tokens` at most, and only while no turn waits for its first token.
    """

    def __init__(self, max_step_tokens: int, chunk_tokens: int, ride_rows: int = 0) -> None:
        self.max_step_tokens = max_step_tokens
        self.chunk_tokens = chunk_tokens
        self.ride_rows = ride_rows

    def pack(self, sessions: Iterable[SessionWork]) -> list[Job]:
        """The next step's jobs. Queues are not changed (`done` does that once the step has run); what rides is
        taken from its scheme at once, and given back by the turn's `abort` if the step fails."""
        active = list(sessions)
        turns = sorted(
            (s.turn for s in active if s.turn is not None and s.turn.admitted), key=lambda turn: turn.submitted
        )
        jobs: list[Job] = []
        ride = self.ride_rows
        for turn in (t for t in turns if not t.reading):
            jobs.extend(Job(each, turn.session, turn, True) for each in turn.passes)
            riding = turn.session.sharing.ride(ride) if ride else []
            jobs.extend(Job(each, turn.session, turn, True, riding=True) for each in riding)
            ride -= sum(len(each) for each in riding)
        most = min(self.chunk_tokens, self.max_step_tokens) if jobs else self.max_step_tokens
        room = whole = max(1, most - sum(len(job.run) for job in jobs))
        waiting: list[tuple[float, SessionWork, TurnWork | None]] = [
            (turn.submitted, turn.session, turn) for turn in turns if turn.reading
        ]
        for session in (s for s in active if s.pending and s.urgent):
            since = session.turn.submitted if session.turn is not None else math.inf
            waiting.append((since, session, None))
        for _, session, reader in sorted(waiting, key=lambda each: each[0]):
            queue = session.pending if reader is None else reader.passes
            room -= self._take(jobs, queue, session, reader, room, alone=reader is not None and room == whole)
        if not waiting:
            room = min(room, self.chunk_tokens)
            for session in (s for s in active if s.pending and s.failure is None):
                room -= self._take(jobs, session.pending, session, None, room)
        return jobs

    def done(self, job: Job) -> None:
        """Take a job that has run out of its queue."""
        if job.riding:
            return
        queue = job.turn.passes if job.turn is not None else job.session.pending
        first = queue.popleft()
        if not job.completes:
            queue.appendleft(first.split(len(job.run))[1])

    @staticmethod
    def _take(
        jobs: list[Job],
        queue: Iterable[Pass],
        session: SessionWork,
        turn: TurnWork | None,
        room: int,
        *,
        alone: bool = False,
    ) -> int:
        """Add passes of one queue in order, the last one cut to fit; returns the rows taken.

        One that cannot be cut waits until it fits, or until it may go `alone`, the first to be given room.
        """
        taken = 0
        for each in queue:
            rows = min(len(each), room - taken)
            if rows < len(each) and not each.splits:
                rows = len(each) if alone and not taken else 0
            if rows <= 0:
                break
            head = each if rows == len(each) else each.split(rows)[0]
            jobs.append(Job(head, session, turn, rows == len(each)))
            taken += rows
            if rows < len(each):
                break
        return taken
