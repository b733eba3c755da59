"""A session: one trajectory and its caches, read and written by any adapters in turn."""

from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

from agentrt.engine.turn import Turn
from agentrt.engine.work import SessionWork
from agentrt.model.sampling import Sampling
from agentrt.trajectory import Trajectory

if TYPE_CHECKING:
    from agentrt.engine.engine import Engine

GREEDY = Sampling()


class Session:
    """Made by `Engine.session`; a context manager. One turn at a time; methods may be called from any thread.

    Every method but `close` raises EngineClosedError after `close`, and SessionBusyError, changing nothing, while a
    turn waits or runs.
    """

    def __init__(self, engine: "Engine", work: SessionWork) -> None:
        self._engine = engine
        self._work = work

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def trajectory(self) -> Trajectory:
        """Token ids, spans and processing paths. To be read between turns; do not modify."""
        return self._work.trajectory

    @property
    def kv_bytes(self) -> int:
        """Bytes of all slots this session's caches hold; shared slots (forks, preambles) count in each."""
        return self._engine.kv_bytes(self._work)

    def append(self, token_ids: Sequence[int], author: str = "user", kind: str = "context") -> None:
        """Add context that the next turn will read. Computes nothing."""
        self._engine.append(self._work, token_ids, author, kind)

    def turn(
        self,
        adapter: str,
        new_token_ids: Sequence[int] = (),
        sampling: Sampling = GREEDY,
        *,
        kind: str = "generated",
    ) -> Turn:
        """Start a turn of `adapter` ("" = adapters off): it reads all unread context, then generates.

        With nothing unread it reads the last token again. If the turn fails or is cancelled, `new_token_ids` and
        all it generated are taken back. Raises UsageError for an unknown adapter, an empty trajectory or a
        context beyond the limit.
        """
        return self._engine.submit(self._work, adapter, new_token_ids, sampling, kind)

    def crop(self, length: int) -> None:
        """Forget everything from position `length` on; waits for outstanding passes."""
        self._engine.crop(self._work, length)

    def fork(self) -> "Session":
        """A second session with the same past: its slots are shared, not copied."""
        return Session(self._engine, self._engine.fork(self._work))

    def wait(self) -> None:
        """Wait until the passes that earlier turns left outstanding have run.

        Raises CacheFullError where there is no room for what a base path still owes.
        """
        self._engine.settle(self._work, catch_up=False)

    def settle(self) -> None:
        """Wait for them, and for those too that the scheme would have put off to a later turn."""
        self._engine.settle(self._work, catch_up=True)

    def close(self) -> None:
        """Cancel a running turn and free every slot. Idempotent."""
        self._engine.close_session(self._work)
