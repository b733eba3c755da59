"""Who sees what where keys or rows skip positions: additive masks, made once a step and used in every layer."""

import torch

from agentrt.model.pieces import HIDDEN, Piece
from agentrt_kernels.lora_attention import penalty


class Masks:
    """For one reader, by piece and window. `places` [n] int32 are its rows' positions, ascending.

    `thinned`: they may skip positions, and keys may lie behind the last of them.
    """

    def __init__(self, places: torch.Tensor, *, thinned: bool) -> None:
        self._places = places
        self._first, self._last = int(places[0]), int(places[-1])
        self._thinned = thinned
        self._made: dict[tuple[int, int | None], torch.Tensor | None] = {}

    def of(self, piece: Piece, window: int | None, keys: torch.Tensor) -> torch.Tensor | None:
        """For a layer's `keys` [T, ...]: [n, T], or [1, T] where all rows see the same.

        None where positions tell who sees what: nothing skips, or all is seen.
        """
        if piece.places is None and not self._thinned:
            return None
        key = (id(piece), window)
        if key not in self._made:
            places = piece.places
            if places is None:
                start, end = piece.position, piece.position + len(keys)
                places = torch.arange(start, end, dtype=torch.int32, device=keys.device)
            self._made[key] = self._make(places, window, keys.dtype)
        return self._made[key]

    def _make(self, keys: torch.Tensor, window: int | None, dtype: torch.dtype) -> torch.Tensor | None:
        there = keys[keys != HIDDEN]
        alike = int(there.max()) <= self._first and (window is None or int(there.min()) > self._last - window)
        if alike and len(there) == len(keys):
            return None
        rows = self._places[:1] if alike else self._places
        hidden = keys > rows[:, None]
        if window is not None and not alike:
            hidden |= keys <= rows[:, None] - window
        return torch.zeros(hidden.shape, dtype=dtype, device=hidden.device).masked_fill_(hidden, penalty(dtype))
