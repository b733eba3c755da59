"""The search team, and a tokenizer of words: episodes have about as many tokens as a real one would give them."""

import re
from collections.abc import Sequence

from agentrt.config.team import Override, Team


class WordTokenizer:
    """A word, with the blank before it, is a token, and so is any other character; ids are given as pieces are met."""

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}
        self._pieces: list[str] = []
        self.eos_ids = ()
        self.marks: tuple[str, ...] = ()

    def encode(self, text: str) -> list[int]:
        return [self._id(piece) for piece in re.findall(r" ?\w+|[\s\S]", text)]

    def decode(self, token_ids: Sequence[int]) -> str:
        return "".join(self._pieces[token_id] for token_id in token_ids)

    def _id(self, piece: str) -> int:
        if piece not in self._ids:
            self._ids[piece] = len(self._pieces)
            self._pieces.append(piece)
        return self._ids[piece]


def search_team(**limits: int) -> Team:
    """The shipped team, adapters or not, with other limits where some are given."""
    values = [Override(("limits", name), value, "the test") for name, value in limits.items()]
    return Team.load("search", overrides=values, need_adapters=False)
