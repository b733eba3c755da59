"""Annotations that say which values an option of a tool takes; `registry` checks them."""

from dataclasses import dataclass


@dataclass(frozen=True)
class AtLeast:
    """The least value of a number, as in `k: Annotated[int, AtLeast(1)]`."""

    value: int
