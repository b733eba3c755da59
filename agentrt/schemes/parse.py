"""How a scheme is named: `rebase_shared`, `rebase_shared:lp`, `rebase_shared:schedule=lp`."""

import difflib
from collections.abc import Mapping
from typing import Any

from agentrt.errors import SchemeError
from agentrt.schemes import SCHEMES, Scheme


def make_scheme(name: str, options: Mapping[str, Any] | None = None) -> Scheme:
    """The scheme `name` (which may carry options after a colon) with `options`.

    Raises SchemeError naming the closest known scheme or option.
    """
    base, _, tail = name.partition(":")
    if base not in SCHEMES:
        raise SchemeError(f"unknown scheme {base!r}{_hint(base, SCHEMES)}; known: {', '.join(SCHEMES)}")
    scheme = SCHEMES[base]
    known = scheme.option_names()
    chosen: dict[str, Any] = dict(options or {})
    for item in filter(None, tail.split(",")):
        key, equals, value = item.partition("=")
        chosen.update({key: _value(value)} if equals else {"schedule": key})
    for key in chosen:
        if key not in known:
            listed = ", ".join(sorted(known)) or "it has none"
            raise SchemeError(f"scheme {base!r} has no option {key!r}{_hint(key, known)}; options: {listed}")
    return scheme(**chosen)


def _value(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _hint(wrong: str, known: "Mapping[str, Any] | frozenset[str]") -> str:
    close = difflib.get_close_matches(wrong, list(known), n=1)
    return f", did you mean {close[0]!r}?" if close else ""
