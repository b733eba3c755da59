"""What a constrained field may hold: one of a few strings, or a span of a text.

Both speak in the token sequences that `Renderer.field` makes, so a model generates what it was trained on, and a
completed field is well formed. They implement `agentrt.model.sampling.Constraint`. An empty set of choices is a
caller's error: a node drops an action whose argument would have none before it offers the action (see `nodes`).
"""

import re
from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from agentrt.config.flow import Emits
from agentrt.runtime.dialect import FieldText, Renderer
from agentrt.runtime.trie import TokenTrie
from agentrt_tools import one_line

MAX_SPAN_WORDS: Final = 12
"""Long enough for every short answer of HotpotQA but quotations."""


class FieldConstraint(Protocol):
    """A constraint that also reads the completed field back; `max_tokens` is the longest field it allows."""

    @property
    def max_tokens(self) -> int: ...

    def allowed(self, generated: Sequence[int]) -> Sequence[int] | None:
        """Token ids that may come next: None = any, empty = the field is complete."""
        ...

    def read(self, generated: Sequence[int]) -> FieldText: ...


class ChoiceConstraint:
    """One of `choices` (at least one; repeated ones count once), each with `closing` behind it.

    Where one choice is a prefix of another and the field has no terminator ("Search", "Search engine" as actions),
    the marker that would follow decides: it is generated, and is the field's tail.
    """

    def __init__(self, renderer: Renderer, emits: Emits, choices: Iterable[str], *, closing: str = "") -> None:
        entries = [(renderer.field(emits, choice + closing), choice) for choice in choices]
        if not entries:
            raise ValueError("a choice needs at least one string")
        self._trie = TokenTrie(entries)
        self._marker_text = renderer.label_text("argument")
        self._marker = renderer.tokenizer.encode(self._marker_text)
        self.max_tokens = max(len(token_ids) for token_ids, _ in entries) + len(self._marker)

    def allowed(self, generated: Sequence[int]) -> Sequence[int]:
        node = self._trie.walk(generated)
        if node is None:
            _, rest = self._split_marker(generated)
            return self._marker[len(rest) : len(rest) + 1]
        if node.value is None or not node.children:
            return list(node.children)
        return [*node.children, self._marker[0]]

    def read(self, generated: Sequence[int]) -> FieldText:
        value, rest = self._split_marker(generated)
        return FieldText(value, self._marker_text if rest else "", True)

    def _split_marker(self, generated: Sequence[int]) -> tuple[str, Sequence[int]]:
        """The choice and the marker tokens behind it."""
        for size in range(min(len(self._marker), len(generated)) + 1):
            head, rest = generated[: len(generated) - size], generated[len(generated) - size :]
            node = self._trie.walk(head)
            if node is not None and node.value is not None and list(rest) == self._marker[:size]:
                return node.value, rest
        raise AssertionError("the tokens did not follow the constraint")


class SpanConstraint:
    """A span of `texts` of at most `max_words` words and `max_tokens` tokens, or one of `also`, `closing` behind it.

    A span starts where a word starts, ends where a word, its closing punctuation or the text ends, and crosses no open,
    close or end marker. Only the first tokens are laid out at once; the spans that begin with the token a model picks
    are tokenised when it has picked it. So a turn pays for one trie over a few dozen spans, not thousands.
    """

    def __init__(
        self,
        renderer: Renderer,
        emits: Emits,
        texts: Iterable[str],
        *,
        also: Iterable[str] = (),
        max_words: int = MAX_SPAN_WORDS,
        max_tokens: int = 64,
        closing: str = "",
    ) -> None:
        self._renderer, self._emits, self._closing = renderer, emits, closing
        self._max_words, self.max_tokens = max_words, max_tokens
        self._also = [(self._field(text), text) for text in also]
        self._starts: dict[int, list[tuple[str, int]]] = {token_ids[0]: [] for token_ids, _ in self._also}
        self._tries: dict[int, TokenTrie] = {}
        first_tokens: dict[str, int | None] = {}
        for piece in self._pieces(texts):
            for start, end in _first_words(piece):
                word = piece[start:end]
                if word not in first_tokens:
                    token_ids = self._field(word)
                    first_tokens[word] = token_ids[0] if len(token_ids) <= max_tokens else None
                first = first_tokens[word]
                if first is not None:
                    self._starts.setdefault(first, []).append((piece, start))
        self.max_tokens = max([max_tokens, *(len(token_ids) for token_ids, _ in self._also)])

    @property
    def empty(self) -> bool:
        """Whether nothing at all may be generated."""
        return not self._starts

    def allowed(self, generated: Sequence[int]) -> Sequence[int]:
        if not generated:
            return list(self._starts)
        node = self._trie(generated[0]).walk(generated[1:])
        assert node is not None, "the tokens did not follow the constraint"
        return list(node.children)

    def read(self, generated: Sequence[int]) -> FieldText:
        node = self._trie(generated[0]).walk(generated[1:])
        assert node is not None
        assert node.value is not None, "the field is not complete"
        return FieldText(node.value, "", True)

    def _field(self, text: str) -> list[int]:
        return self._renderer.field(self._emits, text + self._closing)

    def _pieces(self, texts: Iterable[str]) -> Iterable[str]:
        """The texts cut at markers, which no span may hold; each once, so that repeated pages cost nothing."""
        d = self._renderer.dialect
        markers = "|".join(re.escape(marker) for marker in (d.open, d.close, d.end) if marker.strip())
        pieces = (piece for text in texts for piece in re.split(markers, one_line(text)))
        return dict.fromkeys(filter(None, pieces))

    def _trie(self, first: int) -> TokenTrie:
        """The spans whose first token is `first`, without it."""
        if first not in self._tries:
            spans = {
                piece[start:end]: None
                for piece, start in self._starts[first]
                for end in _ends(piece, start, self._max_words)
            }
            entries = [(self._field(span), span) for span in spans]
            fitting = [entry for entry in entries if len(entry[0]) <= self.max_tokens]
            self._tries[first] = TokenTrie(
                (token_ids[1:], text) for token_ids, text in [*self._also, *fitting] if token_ids[0] == first
            )
        return self._tries[first]


_WORD = re.compile(r"([\"\u201c]?[$£€#.]?)\w+(?:['\u2019.,]\w+)*")
"""A word or number with what may stand before it (group 1) and inside it: "don't", "U.S", "$1,000", ".44"."""

_CLOSERS = ".!?%)\"'\u201d\u2019"


def _first_words(text: str) -> list[tuple[int, int]]:
    """`[start, end)` of each word, with and without what stands before it."""
    words = []
    for match in _WORD.finditer(text):
        words += [(start, match.end()) for start in dict.fromkeys((match.start(), match.end(1)))]
    return words


def _ends(text: str, start: int, max_words: int) -> list[int]:
    """Where a span from `start` may end: behind each of its words, behind the punctuation that closes one, and where
    the text ends."""
    ends: list[int] = []
    for count, match in enumerate(_WORD.finditer(text, start)):
        if count == max_words:
            return ends
        end = match.end()
        ends.append(end)
        while end < len(text) and text[end] in _CLOSERS:
            end += 1
            ends.append(end)
    return [*ends, len(text.rstrip())]
