"""The worker's record of one session and of its running turn. Touched under the engine's lock only."""

import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

import torch

from agentrt.cache.prefix import PreamblePending
from agentrt.engine.turn import FinishReason, Turn, TurnResult, TurnUsage
from agentrt.errors import CacheFullError, EngineClosedError, SessionBusyError, UsageError
from agentrt.model.backbone import Backbone
from agentrt.model.sampling import Sampling, sample
from agentrt.schemes import SharingSession
from agentrt.step import Pass
from agentrt.trajectory import NEUTRAL, Trajectory


@dataclass(eq=False)
class SessionWork:
    """A session's caches, the passes it still owes (`pending`), and its turn, if one runs or waits."""

    trajectory: Trajectory
    sharing: SharingSession
    pending: deque[Pass] = field(default_factory=deque)
    turn: "TurnWork | None" = None
    urgent: bool = False
    """Somebody waits for the pending passes."""
    failure: BaseException | None = None
    """A pending pass failed: it is tried again when the session's next turn needs it."""
    closing: bool = False
    closed: bool = False
    quiet_since: float = 0.0
    """When the last pending pass ended."""

    def rest(self, turn: "TurnWork | None") -> None:
        """Note that a job of this session ended; `turn` None: a pending pass."""
        if turn is None and not self.pending:
            self.urgent = False
            self.quiet_since = time.perf_counter()
            self.sharing.quiet()

    def check_idle(self) -> None:
        """Raises EngineClosedError for a closed session, SessionBusyError where a turn waits or runs."""
        if self.closed or self.closing:
            raise EngineClosedError("the session is closed; open a new one with engine.session()")
        if self.turn is not None:
            raise SessionBusyError(
                f"{self.turn.whose} is running in this session ({self.turn.stage}); wait for turn.result or cancel it, "
                "or give each thread a session of its own"
            )


@dataclass(eq=False)
class TurnWork:
    """One turn: waiting, reading its passes, then decoding token by token."""

    handle: Turn
    session: SessionWork
    adapter: str
    sampling: Sampling
    kind: str
    before: Trajectory
    """Copy to restore when the turn is undone."""
    submitted: float = field(default_factory=time.perf_counter)
    passes: deque[Pass] = field(default_factory=deque)
    admitted: bool = False
    short_of_room: bool = False
    """It was tried, and the KV budget had no room."""
    cancelled: bool = False
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    _context: int = 0
    _known: int = 0
    _read_rows: int = 0
    _first_rebuilt: int = 0
    """Context that the base path alone reads."""
    _rows: int = 0
    """Tokens run for this turn, whatever the path."""
    _rebuilt_rows: int = 0
    """Of these, those of passes that only bring a shared cache up to date."""
    _quiet: float = 0.0
    _first: float = 0.0

    @property
    def whose(self) -> str:
        """The turn, in words."""
        return "a turn with adapters off" if self.adapter == NEUTRAL else f"a turn of {self.adapter!r}"

    @property
    def stage(self) -> str:
        """What it is at, in words."""
        if self.token_ids:
            return f"tokens so far: {len(self.token_ids)}"
        return "reading its context" if self.admitted else "waiting to start"

    @property
    def reading(self) -> bool:
        """Admitted, and its first token has not come."""
        return self.admitted and not self.token_ids

    def admit(self) -> None:
        """Reserve the turn's slots and line up its passes, unless another session is computing its preamble.

        Raises CacheFullError, changing nothing.
        """
        trajectory, sharing = self.session.trajectory, self.session.sharing
        if trajectory.num_processed == len(trajectory):  # nothing to feed: the last token is read again
            last = len(trajectory) - 1
            sharing.crop(last)
            trajectory.step_back(last)
            self.before.step_back(last)
        self._quiet = max(self.submitted, self.session.quiet_since)
        known = trajectory.num_processed
        try:
            self.passes.extend(sharing.begin(self.adapter, self.sampling.max_new_tokens))
        except PreamblePending:
            return  # asked again before the next step
        except CacheFullError:
            trajectory.unprocess(known)  # a preamble it had found is given back
            raise
        self._known = max(known, sharing.reused_preamble)
        self._context = len(trajectory) - self._known
        self._read_rows = sum(each.num_read for each in self.passes if each.path == self.adapter)
        self._first_rebuilt = max(0, self._context - sum(each.num_read for each in self.passes if not each.rebuild))
        self.admitted = True

    def count(self, run: Pass) -> None:
        """Note a pass of this turn that has run."""
        self._rows += run.num_read
        self._rebuilt_rows += len(run) if run.rebuild else 0

    def settle(self, logits: torch.Tensor) -> None:
        """Sample the next token from `logits` [vocab], then line up its passes or end the turn."""
        trajectory, sampling = self.session.trajectory, self.sampling
        token_id, logprob = sample(logits, sampling, len(trajectory), sampling.allowed(self.token_ids))
        if self.token_ids:
            trajectory.extend(token_id)
        else:
            self._first = time.perf_counter()
            trajectory.append([token_id], self.adapter, self.kind)
        self.token_ids.append(token_id)
        self.logprobs.append(logprob)
        self.handle.publish(token_id)
        reason = self._finish_reason()
        if reason is None:
            self.passes.extend(self.session.sharing.feed())
        else:
            self._end(reason)

    def undo(self, error: BaseException) -> None:
        """Put session and trajectory back to the turn boundary and report `error`."""
        if self.admitted:
            self.session.sharing.abort()
        self.session.trajectory.restore(self.before)
        self.session.turn = None
        self.handle.finish(error)

    def _finish_reason(self) -> FinishReason | None:
        sampling = self.sampling
        if sampling.forces(self.token_ids):
            return None
        if sampling.stop is not None and sampling.stop(self.token_ids):
            return "stop"
        allowed = sampling.allowed(self.token_ids)
        if allowed is not None and len(allowed) == 0:
            return "constraint"
        return "length" if len(self.token_ids) == sampling.max_new_tokens else None

    def _end(self, reason: FinishReason) -> None:
        session = self.session
        kv_bytes = session.sharing.kv_bytes
        session.pending.extend(session.sharing.end())
        if not session.pending:
            session.sharing.quiet()
        session.turn = None
        generated = len(self.token_ids)
        owed = sum(len(each) for each in session.pending)
        owed_rebuilds = sum(len(each) for each in session.pending if each.rebuild)
        reconstructed = self._rebuilt_rows + owed_rebuilds - self._first_rebuilt
        again = self._rows + owed - self._context - (generated - 1)
        decode_s = time.perf_counter() - self._first
        usage = TurnUsage(
            context_tokens=self._context,
            reused_tokens=self._known - max(0, self._read_rows - self._context),
            recomputed_tokens=again - reconstructed,
            reconstructed_tokens=reconstructed,
            generated_tokens=generated,
            ttft_s=self._first - self._quiet,
            submit_to_first_token_s=self._first - self.submitted,
            decode_tokens_per_s=(generated - 1) / decode_s if generated > 1 else 0.0,
            kv_bytes=kv_bytes,
        )
        self.handle.finish(TurnResult(tuple(self.token_ids), reason, tuple(self.logprobs), usage))


def checked_ids(token_ids: Iterable[int], backbone: Backbone) -> list[int]:
    """The ids as a list. Raises UsageError for one outside the vocabulary."""
    checked = [int(token_id) for token_id in token_ids]
    for token_id in checked:
        if not 0 <= token_id < backbone.vocab_size:
            raise UsageError(f"token id {token_id} is outside the vocabulary [0, {backbone.vocab_size})")
    return checked
