"""An engine whose sessions tell what is about to happen or just did: turns and tokens in the episode's own thread,
steps of a prefill in the thread that computes them, where the backbone is a `WatchedBackbone`."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch

from agentrt.engine import Engine
from agentrt.model.backbone import Backbone

Logits = list[torch.Tensor | None]


class WatchedBackbone(Backbone):
    """Calls `after` with what every step gave, before anybody else sees it."""

    after: Callable[[Logits], object] = staticmethod(lambda logits: None)

    def run(self, *args: Any) -> Logits:
        logits = super().run(*args)
        self.after(logits)
        return logits


class Moment(NamedTuple):
    """`what`: turn (about to start), prefill (a step has run, and the first token needs more of them; `token` counts
    such steps), token (sampled), end (the turn has ended, and nothing of it is saved yet), close (of the session;
    `turn` is 0: the episode is over, and nothing says so yet)."""

    what: str
    turn: int
    token: int = 0


class Watched:
    """`tell` is called with every moment; turns and tokens count from 1. Rebuilding a cache is not told."""

    def __init__(self, engine: Engine, tell: Callable[[Moment], object]) -> None:
        self._engine, self._tell, self._turns, self._steps = engine, tell, 0, 0
        self._inner: Any = None
        if isinstance(engine.backbone, WatchedBackbone):
            engine.backbone.after = self._stepped

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def session(self, preamble: Sequence[int] | None) -> "_Session":
        self._turns = 0
        self._inner = self._engine.session(preamble)
        return _Session(self._inner, self)

    def turn(self, inner: Any, sampling: Any, *args: Any, **options: Any) -> Any:
        if sampling.forced:
            return inner.turn(*args, sampling=sampling, **options)
        self._turns, self._steps = self._turns + 1, 0
        self._tell(Moment("turn", self._turns))
        return _Turn(inner.turn(*args, sampling=sampling, **options), self._turns, self._tell)

    def closing(self) -> None:
        self._tell(Moment("close", 0))

    def _stepped(self, logits: Logits) -> None:
        turn = self._inner._work.turn if self._inner is not None else None
        if turn is not None and turn.reading and not turn.sampling.forced and all(each is None for each in logits):
            self._steps += 1
            self._tell(Moment("prefill", self._turns, self._steps))


class _Session:
    def __init__(self, inner: Any, watched: Watched) -> None:
        self._inner, self._watched = inner, watched

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def turn(self, *args: Any, sampling: Any, **options: Any) -> Any:
        return self._watched.turn(self._inner, sampling, *args, **options)

    def close(self) -> None:
        self._watched.closing()
        self._inner.close()


class _Turn:
    def __init__(self, inner: Any, number: int, tell: Callable[[Moment], object]) -> None:
        self._inner, self._number, self._tell = inner, number, tell
        self.cancel = inner.cancel

    def __iter__(self) -> Iterator[int]:
        for at, token_id in enumerate(self._inner, 1):
            yield token_id
            self._tell(Moment("token", self._number, at))

    @property
    def result(self) -> Any:
        result = self._inner.result
        self._tell(Moment("end", self._number))
        return result
