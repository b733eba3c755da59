"""What a row of a step reads, by address: for kernels that are given memory, not tensors."""

from collections.abc import Sequence
from typing import NamedTuple


class Where(NamedTuple):
    """Rows of one part of a plane: the address of the first in layer 0; bytes to the next layer, to the next row."""

    address: int
    layer_bytes: int
    row_bytes: int

    def at(self, row: int) -> "Where":
        return self._replace(address=self.address + row * self.row_bytes)


class Piece(NamedTuple):
    """Consecutive keys: k and v rows [Hkv, d] each, contiguous; lr rows [rank of the row that reads them], or none."""

    length: int
    k: Where
    v: Where
    lr: Where | None = None

    def after(self, skip: int) -> "Piece":
        """Without its first keys."""
        return Piece(self.length - skip, self.k.at(skip), self.v.at(skip), self.lr and self.lr.at(skip))


class Row(NamedTuple):
    """Row `at` of the packed step sees these pieces in full.

    `ups`: the addresses, layer by layer, of its adapter's B, scaling included, fp32 [rank, Hkv, d], contiguous; none
    where it has no low-rank term, and with `rank` 0 the pieces' low-rank rows are not read.
    """

    at: int
    pieces: Sequence[Piece]
    ups: Sequence[int] = ()
    rank: int = 0

    @property
    def length(self) -> int:
        """Keys it sees."""
        return sum(piece.length for piece in self.pieces)
