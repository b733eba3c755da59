"""How sure the model was of an answer: the probability it gave to its words where they were first decided on."""

import math
import re
from collections.abc import Sequence

from agentrt.runtime.ports import Tokenizer


def answer_confidence(
    tokenizer: Tokenizer,
    answer: str,
    thought: Sequence[int],
    thought_logprobs: Sequence[float],
    field_logprobs: Sequence[float],
) -> float | None:
    """The geometric mean of the probabilities of the answer's tokens, in (0, 1]; None for an empty field.

    Who writes the field copies what the thought before it decided on. So the tokens are those of the last time that the
    thought says the answer, and those of the field (`field_logprobs`) only where it does not.
    """
    said = _positions(tokenizer, answer, thought) if len(thought) == len(thought_logprobs) else range(0)
    logprobs = [thought_logprobs[at] for at in said] or field_logprobs
    return math.exp(sum(logprobs) / len(logprobs)) if logprobs else None


def _positions(tokenizer: Tokenizer, answer: str, token_ids: Sequence[int]) -> range:
    """The tokens that hold the last occurrence of `answer` as whole words; none where the text lacks it."""
    found = [*re.finditer(rf"(?<!\w){re.escape(answer)}(?!\w)", tokenizer.decode(token_ids))] if answer else []
    if not found:
        return range(0)
    first, (start, end) = 0, found[-1].span()
    for at in range(len(token_ids)):
        length = len(tokenizer.decode(token_ids[: at + 1]))
        if length <= start:
            first = at + 1
        if length >= end:
            return range(first, at + 1)
    return range(0)
