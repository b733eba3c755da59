"""A trie of token sequences, each with the text it stands for. Integers and strings only."""

from collections.abc import Iterable, Sequence


class TokenTrie:
    """Finds which tokens may follow a prefix so that it stays a prefix of some entry."""

    def __init__(self, entries: Iterable[tuple[Sequence[int], str]] = ()) -> None:
        self.children: dict[int, TokenTrie] = {}
        self.value: str | None = None
        """The text of the entry that ends here, if one does."""
        for token_ids, value in entries:
            self.add(token_ids, value)

    def add(self, token_ids: Sequence[int], value: str) -> None:
        """The first of two entries with the same tokens stays."""
        node = self
        for token_id in token_ids:
            node = node.children.setdefault(token_id, TokenTrie())
        if node.value is None:
            node.value = value

    def walk(self, token_ids: Sequence[int]) -> "TokenTrie | None":
        """The node that `token_ids` leads to, None where no entry starts with them."""
        node = self
        for token_id in token_ids:
            child = node.children.get(token_id)
            if child is None:
                return None
            node = child
        return node
