"""How much the caches may hold, as people write it: GiB as a plain number, or tokens with a `t` behind it."""

import re
from typing import Annotated, Any, Final, NamedTuple, Self

from pydantic import BeforeValidator

from agentrt.errors import UsageError

_GIB: Final = re.compile(r"\d+(\.\d+)?")
_TOKENS: Final = re.compile(r"\d+t")


class KVBudget(NamedTuple):
    """One of the two is set. A token counts as one row of everything its scheme keeps: K and V plus its columns."""

    num_bytes: int | None
    num_tokens: int | None

    @classmethod
    def parse(cls, value: str | float) -> Self:
        """Read `1.5` (GiB) or `20000t` (tokens). Raises UsageError naming the value and the two forms."""
        text = str(value).strip()
        budget = cls(None, None)
        if _TOKENS.fullmatch(text):
            budget = cls(None, int(text[:-1]))
        elif _GIB.fullmatch(text):
            budget = cls(int(float(text) * 2**30), None)
        if not any(budget):
            raise UsageError(f"{text!r} is no KV budget: write GiB as a number (1.5), or tokens with a t (20000t)")
        return budget


def _check(value: Any) -> Any:
    if isinstance(value, (str, int, float)) and not isinstance(value, bool):
        KVBudget.parse(value)
        return str(value)
    return value


BudgetText = Annotated[str, BeforeValidator(_check)]
"""Text that `KVBudget.parse` reads; a file may hold a number."""
