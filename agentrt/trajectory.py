"""The shared trajectory of one episode: token ids, who wrote them, and which path processed them.

Knows nothing of caches, models or text. Positions are token indices; all intervals are half-open `[a, b)`.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

NEUTRAL: Final = ""
"""The path with every adapter off. Adapter names are never empty."""


class Span(NamedTuple):
    """Tokens `[start, end)` that one author wrote in one go. `kind` is free text, e.g. "observation"."""

    start: int
    end: int
    author: str
    kind: str


class Processed(NamedTuple):
    """Tokens `[start, end)` that one path ran through the model."""

    start: int
    end: int
    path: str


@dataclass
class Trajectory:
    """Append-only token ids with two partitions: by author and by processing path.

    `preamble` counts the leading tokens that a scheme processes by its fixed path before the first turn.
    The partitions differ at turn boundaries: the last token a turn samples is fed by the next turn, through its path.
    `num_processed <= len(token_ids)`; the tokens between are waiting to be read.
    """

    token_ids: list[int] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    processed: list[Processed] = field(default_factory=list)
    preamble: int = 0

    def __len__(self) -> int:
        return len(self.token_ids)

    @property
    def num_processed(self) -> int:
        return self.processed[-1].end if self.processed else 0

    def append(self, token_ids: Iterable[int], author: str, kind: str) -> Span:
        """Add tokens at the end; consecutive tokens of one author and kind are still separate spans."""
        start = len(self.token_ids)
        self.token_ids.extend(token_ids)
        span = Span(start, len(self.token_ids), author, kind)
        if span.end > span.start:
            self.spans.append(span)
        return span

    def extend(self, token_id: int) -> None:
        """Add one token to the last span."""
        self.token_ids.append(token_id)
        self.spans[-1] = self.spans[-1]._replace(end=len(self.token_ids))

    def mark_processed(self, end: int, path: str) -> None:
        """Record that `[num_processed, end)` went through `path`; joins a neighbour with the same path."""
        start = self.num_processed
        assert start <= end <= len(self.token_ids)
        if start == end:
            return
        if self.processed and self.processed[-1].path == path:
            start = self.processed.pop().start
        self.processed.append(Processed(start, end, path))

    def crop(self, length: int) -> None:
        """Forget everything from position `length` on."""
        assert 0 <= length <= len(self.token_ids)
        del self.token_ids[length:]
        self.preamble = min(self.preamble, length)
        self.spans = [s._replace(end=min(s.end, length)) for s in self.spans if s.start < length]
        self.unprocess(length)

    def unprocess(self, length: int) -> None:
        """Count tokens from position `length` on as waiting again; they stay in the trajectory."""
        self.processed = [p._replace(end=min(p.end, length)) for p in self.processed if p.start < length]

    def step_back(self, length: int) -> None:
        """Count tokens from position `length` on as waiting again, for whichever path reads next: of a preamble, which
        is what one path read before the first turn, they are no part any longer."""
        self.unprocess(length)
        self.preamble = min(self.preamble, length)

    def restore(self, earlier: "Trajectory") -> None:
        """Become equal to `earlier`, a copy taken before."""
        self.token_ids[:] = earlier.token_ids
        self.spans, self.processed = list(earlier.spans), list(earlier.processed)
        self.preamble = earlier.preamble

    def copy(self) -> "Trajectory":
        return Trajectory(list(self.token_ids), list(self.spans), list(self.processed), self.preamble)
