"""A thought that is free text until certain words, and ends with one of certain texts behind them."""

from collections.abc import Callable, Mapping, Sequence

from agentrt.runtime.constraints import FieldConstraint
from agentrt.runtime.dialect import FieldText, Renderer


class EndingConstraint:
    """`endings` gives, by the words before, what may end the thought; None of it: the words mean nothing now.

    The first such words count, wherever a token ends with them. An ending is laid out when its words were written:
    most thoughts have one of several.
    """

    def __init__(
        self, renderer: Renderer, endings: Mapping[str, Callable[[], FieldConstraint | None]], max_tokens: int
    ) -> None:
        self._renderer = renderer
        self._endings = dict(endings)
        self._opened: dict[str, FieldConstraint | None] = {}
        self.max_tokens = max_tokens

    def allowed(self, generated: Sequence[int]) -> Sequence[int] | None:
        if generated and self._renderer.stopped("thought", generated):
            return []
        start, words = self._found(generated)
        ending = self._open(words) if words else None
        return None if ending is None else ending.allowed(generated[start:])

    def read(self, generated: Sequence[int]) -> FieldText:
        return self._renderer.read("thought", generated)

    def _found(self, generated: Sequence[int]) -> tuple[int, str]:
        """Where the ending begins, and the words before it; "" where they were not written yet."""
        decode = self._renderer.tokenizer.decode
        written = decode(list(generated))
        if not any(words in written for words in self._endings):
            return 0, ""
        for start in range(1, len(generated) + 1):
            text = decode(list(generated[:start]))
            for words in self._endings:
                if text.endswith(words) and self._open(words) is not None:
                    return start, words
        return 0, ""

    def _open(self, words: str) -> FieldConstraint | None:
        if words not in self._opened:
            self._opened[words] = self._endings[words]()
        return self._opened[words]
