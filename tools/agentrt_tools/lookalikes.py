"""Characters that look like Latin ones: what a reader takes for a label must be found as one."""

import unicodedata
from functools import lru_cache
from typing import Final

# Cyrillic and Greek letters that are drawn like Latin ones.
_LETTERS: Final = {
    **dict(zip("АВЕЅІЈКМНОРСТУХаеѕіјкорстухһԁԛԝо", "ABESIJKMHOPCTYXaesijkopctyxhdqwo", strict=True)),
    **dict(zip("ΑΒΕΖΗΙΚΜΝΟΡΤΥΧαοινρτυχκ", "ABEZHIKMNOPTYXaoivptuxk", strict=True)),
}

INVISIBLE: Final = "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0]"
"""A pattern of characters that are drawn as nothing, and that no category marks as such."""


def fold_lookalikes(text: str) -> str:
    """`text` with every look-alike as the Latin character, one for one: positions stay what they were."""
    return text if text.isascii() else "".join(map(_fold, text))


@lru_cache(maxsize=4096)
def _fold(character: str) -> str:
    plain = _LETTERS.get(character) or unicodedata.normalize("NFKC", character)
    return plain if len(plain) == 1 else character
