"""Ctrl-F over what an episode has read: the next passage that holds a keyword, in the wording of a style."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from agentrt_tools.base import Json, ToolResult
from agentrt_tools.options import Style
from agentrt_tools.titles import echo, fold


class Wording(NamedTuple):
    """What a lookup says; `argument` is the model's own."""

    hit: str
    none: str
    no_more: str
    closed: str
    blank: str


WORDINGS: Final[Mapping[Style, Wording]] = {
    "react": Wording(
        hit="(Result {at} / {of}) {passage}",
        none="No results for [{argument}] on this page.",
        no_more="No more results.",
        closed="No page is open. Read a page before looking up a keyword in it.",
        blank="Name a keyword to look up.",
    ),
    "autoact": Wording(
        hit="(Result {at}/{of}) {passage}",
        none="No Results",
        no_more="No More Results",
        closed="The last page Retrieved was not found, so you cannot Lookup a keyword in it. "
        "Please try one of the similar pages given.",
        blank="No Results",
    ),
}


def look_up(
    passages: Sequence[str] | None, argument: str, state: Mapping[str, Json], style: Style = "react"
) -> ToolResult:
    """The next of `passages` that holds the keyword, in any case; None: nothing was read that could be scanned.

    Asking again gives the next one; another keyword, or opening a page, starts from the first.
    """
    said, keyword = WORDINGS[style], fold(argument)
    facts: dict[str, Json] = {"keyword": argument, "page": state.get("page"), "result": 0, "results": 0}
    if passages is None or not keyword:
        return ToolResult(said.closed if passages is None else said.blank, facts, dict(state), miss=True)
    hits = [passage for passage in passages if keyword in fold(passage)]
    cursor = state.get("lookup_next") if state.get("lookup_keyword") == keyword else 0
    at = cursor if isinstance(cursor, int) else 0
    now: dict[str, Json] = {**state, "lookup_keyword": keyword, "lookup_next": min(at + 1, len(hits))}
    facts["results"] = len(hits)
    if at >= len(hits):
        text = said.no_more if hits else said.none.format(argument=echo(argument))
        return ToolResult(text, facts, now, miss=True)
    facts["result"] = at + 1
    return ToolResult(said.hit.format(at=at + 1, of=len(hits), passage=hits[at]), facts, now)
