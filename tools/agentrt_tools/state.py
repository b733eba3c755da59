"""The keys that tools keep in an episode's state, and how reading and searching change them. Plain JSON.

`page`: title now open, or None. `read`: titles read, in order. `passages`: what a search showed, which a lookup scans
while no page is open. `lookup_keyword` (or None) and `lookup_next`: the result that a lookup shows next.
"""

from collections.abc import Mapping, Sequence

from agentrt_tools.base import Json


def opened(state: Mapping[str, Json], page: str | None) -> dict[str, Json]:
    """The state once `page` is open (None: it was not found, and no page is)."""
    read = titles_read(state)
    if page is not None and page not in read:
        read.append(page)
    kept = {key: value for key, value in state.items() if key != "passages"}
    return {**kept, "page": page, "read": list(read), "lookup_keyword": None, "lookup_next": 0}


def searched(state: Mapping[str, Json], passages: Sequence[str]) -> dict[str, Json]:
    """The state once a search showed `passages`: no page is open."""
    return {**state, "page": None, "passages": list(passages), "lookup_keyword": None, "lookup_next": 0}


def titles_read(state: Mapping[str, Json]) -> list[str]:
    return _texts(state.get("read"))


def passages_shown(state: Mapping[str, Json]) -> list[str]:
    return _texts(state.get("passages"))


def _texts(value: Json) -> list[str]:
    return [text for text in value if isinstance(text, str)] if isinstance(value, list) else []
