"""A Wikipedia page -> the text of an observation, in the wording of a style. Pure.

`react`: the first sentences of the introduction. `autoact`: everything before the first empty line, line ends left
out without a blank, as AutoAct's runtime does it.
"""

import re
from collections.abc import Sequence
from typing import Final

from agentrt_tools.options import Style
from agentrt_tools.sentences import split_sentences
from agentrt_tools.text import one_line
from agentrt_tools.titles import echo

AUTOACT_ERROR: Final = "Could not find that page, please try again."
_HEADING: Final = re.compile(r"^=+[^=\n]+=+[ \t]*$", re.MULTILINE)


def render_page(content: str, style: Style, sentences: int) -> str:
    """The start of a page."""
    if style == "autoact":
        return one_line(content.strip().split("\n\n")[0].replace("\n", ""))
    introduction = _HEADING.split(content, maxsplit=1)[0]
    return one_line("".join(split_sentences(one_line(introduction))[:sentences]))


def render_missing(argument: str, similar: Sequence[str], style: Style) -> str:
    """What the model is told where there is no such page, with the titles it may mean."""
    if style == "autoact":
        return f"Could not find [{echo(argument)}]. Similar: {list(similar)}"
    return f"Could not find [{echo(argument)}]." + (f" Similar: [{'; '.join(similar)}]" if similar else "")


def page_passages(content: str, style: Style) -> list[str]:
    """What a lookup scans: sentences without headings (`react`), or paragraphs with them (`autoact`)."""
    if style == "autoact":
        paragraphs = content.split("\n\n")
        return [text for text in (one_line(paragraph.replace("\n", "")) for paragraph in paragraphs) if text]
    lines = _HEADING.sub("\n", content).splitlines()
    return [text for line in lines for sentence in split_sentences(line) if (text := one_line(sentence))]
