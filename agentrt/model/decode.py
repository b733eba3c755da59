"""A step's single rows through the compiled CPU kernel: one call a layer for all of them, see `agentrt_kernels`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import torch

from agentrt.model.adapters import AdapterSet
from agentrt_kernels.lora_attention.decode import Decode, prepare
from agentrt_kernels.lora_attention.pieces import Piece, Row, Where

if TYPE_CHECKING:
    from agentrt.model.context import Reader


class StepDecode:
    """Owned by a backbone's StepContext. `begin` takes the readers it can serve out of a step's list."""

    def __init__(self, dtype: torch.dtype, head_dim: int, heads: int, kv_heads: int, num_layers: int) -> None:
        prepare(dtype, head_dim, heads // kv_heads)
        self._dtype, self._head_dim, self._num_layers = dtype, head_dim, num_layers
        self._kv_heads, self._group = kv_heads, heads // kv_heads
        self._decodes: dict[int | None, Decode] = {}
        self._ups: WeakKeyDictionary[AdapterSet, dict[str, list[torch.Tensor]]] = WeakKeyDictionary()
        self._readers: list[Reader] = []

    def prepare(self, adapters: AdapterSet) -> None:
        """Compile what rows of these adapters will need."""
        prepare(self._dtype, self._head_dim, self._group, max(adapters.ranks.values(), default=0))

    def begin(self, readers: Sequence["Reader"], adapters: AdapterSet) -> list["Reader"]:
        """Announce a step; returns the readers that are left to torch: several rows at once, masks, overlays."""
        self._adapters = adapters
        self._decodes = {}
        self._readers = []
        left: list[Reader] = []
        for each in readers:
            (self._readers if each.end - each.start == 1 and self._serves(each) else left).append(each)
        return left

    def __bool__(self) -> bool:
        """Whether it has rows to serve in this step."""
        return bool(self._readers)

    def attend(self, layer: int, queries: torch.Tensor, out: torch.Tensor, scale: float, window: int | None) -> None:
        """Fill the served rows of out [rows, H, d] from queries of the same shape, both contiguous."""
        decode = self._decodes.get(window)
        if decode is None:
            rows = [self._row(reader, window) for reader in self._readers]
            decode = self._decodes[window] = Decode(
                rows,
                dtype=self._dtype,
                kv_heads=self._kv_heads,
                group=self._group,
                head_dim=self._head_dim,
                num_layers=self._num_layers,
            )
        decode.run(layer, queries, out, scale)

    def _serves(self, reader: "Reader") -> bool:
        """The kernel wants every layer in one tensor, values in full or with low-rank rows of the same dtype."""
        if reader.masks is not None or reader.overlaid:
            return False
        columns = (piece.column for piece in reader.pieces if piece.column is not None)
        return all(column.segment["lr"].dtype == self._dtype for column in columns)

    def _row(self, reader: "Reader", window: int | None) -> Row:
        first = 0 if window is None else reader.position - window + 1
        pieces = []
        for position, keys, column, _ in reader.pieces:
            lr = None if column is None else Where(*column.place("lr"))
            piece = Piece(keys.end - keys.start, Where(*keys.place("k")), Where(*keys.place("v")), lr)
            skip = max(0, first - position)
            if skip < piece.length:
                pieces.append(piece.after(skip) if skip else piece)
        if not reader.factored:
            return Row(reader.start, pieces)
        return Row(reader.start, pieces, self._addresses(reader.path), self._adapters.ranks[reader.path])

    def _addresses(self, path: str) -> list[int]:
        """Where B of this adapter's v_proj lies, layer by layer."""
        ups = self._ups.setdefault(self._adapters, {})
        if path not in ups:
            layers = range(self._num_layers)
            ups[path] = [self._adapters.value_up(path, each, self._kv_heads).float().contiguous() for each in layers]
        return [up.data_ptr() for up in ups[path]]
