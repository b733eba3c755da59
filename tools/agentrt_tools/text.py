"""Make text from outside fit for a model: one line, within a token budget, unable to forge the runtime's own marks."""

import re
import textwrap
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from agentrt_tools.lookalikes import INVISIBLE, fold_lookalikes
from agentrt_tools.sentences import split_sentences

__all__ = ["TRUNCATED", "clip", "neutralise", "one_line", "shorten", "split_sentences"]

TRUNCATED: Final = " [truncated]"

_COLONS: Final = ":\uff1a\ufe55\u2236\ua789\ufe13"
_DROPPED: Final = {"Cf", "Cs", "Co", "Cn"}  # invisible, half a character, or no character


def one_line(text: str) -> str:
    """Collapse line ends, control characters and runs of blanks to one blank; drop invisible characters."""
    if text.isprintable():
        return " ".join(text.split())
    kept = ((char, unicodedata.category(char)) for char in text)
    return " ".join("".join(" " if kind == "Cc" else char for char, kind in kept if kind not in _DROPPED).split())


def shorten(text: str, chars: int) -> str:
    """The words that fit `chars` on one line, with "…" in place of the others; one word too long is cut."""
    line = one_line(text)
    if len(line) <= chars:
        return line
    return (textwrap.shorten(line, chars, placeholder=" …") if chars > 1 else "") or line[: max(chars - 1, 0)]


def neutralise(text: str, labels: Iterable[str] = (), special: Iterable[str] = ()) -> str:
    """One line in which no `labels` ("Action:") and no `special` tokens ("<|im_end|>") are left.

    A label with a colon loses it ("Action - "), also when written with other case, blanks, emphasis, invisible
    or look-alike characters; one without a colon is broken up. `<|` and `|>` go whether listed or not. The text
    stays readable, and what a reader would see there is still there.
    """
    text = one_line(text).replace("<|", "(").replace("|>", ")")
    labels = [label.strip() for label in labels if label.strip()]
    special = [token.strip() for token in special if token.strip()]
    # one substitution may join the halves of another look-alike: repeat until nothing changes
    for _ in range(len(text)):
        before = text
        for token in special:
            text = text.replace(token, _broken(token))
        for label in labels:
            text = _without_label(text, label)
        if text == before:
            break
    return text


def clip(
    text: str,
    max_tokens: int,
    count: Callable[[str], int],
    *,
    mark: str = TRUNCATED,
    keep_from: str | None = None,
) -> str:
    """The longest run of whole sentences, then `mark`, with at most `max_tokens` by `count`.

    Falls back to whole words, then characters; "" where not even the mark and one character fit. With
    `keep_from`, the end of the text from the last such string on (" Links: ") is kept whole, unless it
    takes more than half of the budget.
    """
    if count(text) <= max_tokens:
        return text
    at = text.rfind(keep_from) if keep_from else -1
    tail = text[at:] if at > 0 and 2 * count(text[at:]) <= max_tokens else ""
    body = text[: len(text) - len(tail)]
    for parts in (split_sentences(body), re.findall(r"\s*\S+", body), list(body)):
        fitting = _longest(parts, max_tokens, lambda head: count(head.rstrip() + mark + tail))
        if fitting:
            return fitting.rstrip() + mark + tail
    return ""


def _longest(parts: Sequence[str], limit: int, cost: Callable[[str], int]) -> str:
    """The longest prefix of `parts`, joined, that costs at most `limit`; "" if none does."""
    size = bisect_right(range(1, len(parts) + 1), limit, key=lambda n: cost("".join(parts[:n])))
    # token counts grow almost, not quite, monotonically
    while size and cost("".join(parts[:size])) > limit:
        size -= 1
    return "".join(parts[:size])


def _without_label(text: str, label: str) -> str:
    stem = label.rstrip(_COLONS + " ")
    if not stem or stem == label:
        return text.replace(label, _broken(label))
    between = rf"(?:[\s*_`]|{INVISIBLE})*"
    words = between.join("".join(f"{re.escape(char)}{INVISIBLE}*" for char in word) for word in stem.split())
    kept, at = [], 0
    for match in re.finditer(rf"({words}){between}[{_COLONS}]+", fold_lookalikes(text), re.IGNORECASE):
        kept += [text[at : match.end(1)], " -"]
        at = match.end()
    return "".join([*kept, text[at:]])


def _broken(token: str) -> str:
    """A text that shows what `token` was and does not hold it: round brackets, or a dot after its first character."""
    core = token.strip("<>|[]{}/")
    if core != token:
        return f"({core})" if core else ""
    dot = "·" if "·" not in token else "-"  # one that the token lacks, so that it cannot form anew
    return f"{token[0]}{dot}{token[1:]}" if len(token) > 1 else dot
