"""Which positions of a stretch an agent has rows of its own for. Some are known only when a forward has chosen them."""

import torch


class Places:
    """`count` of the positions `[start, end)`, in order.

    All of them, or none, are known at once. Some are chosen by the pass that computes their rows, which says so with
    `settle`; how many slots that takes is known before.
    """

    def __init__(self, start: int, end: int, count: int) -> None:
        assert 0 <= count <= end - start
        self.start, self.end, self.count = start, end, count
        known = count in (0, end - start)
        self._positions = torch.arange(start, start + count, dtype=torch.int32) if known else None

    def __len__(self) -> int:
        return self.count

    @property
    def known(self) -> bool:
        return self._positions is not None

    @property
    def positions(self) -> torch.Tensor:
        """int32 [count] on the CPU, ascending."""
        assert self._positions is not None, "read before they were chosen"
        return self._positions

    def settle(self, positions: torch.Tensor) -> None:
        """These were chosen. The host waits for a device that they are on: what is read next depends on them."""
        assert len(positions) == self.count
        self._positions = positions.to("cpu", torch.int32)

    def before(self, end: int) -> "Places":
        """Those below `end`. Unless they all are, they must be known."""
        if end >= self.end:
            return self
        below = self.positions[self.positions < end]
        places = Places(self.start, max(end, self.start), len(below))
        places._positions = below
        return places
