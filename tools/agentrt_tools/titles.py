"""Forms of an article title: as shown, and as compared when a model spells one almost right."""

import html
import re
import unicodedata
from typing import Final

from agentrt_tools.text import shorten

_QUOTES: Final = str.maketrans(
    "\u2018\u2019\u02bc`\u201c\u201d\u201e\u2013\u2014\u2212_",
    "''''\"\"\"--- ",
)
_ECHO_CHARS: Final = 100  # of the model's own argument in a message to it
_QUALIFIED: Final = re.compile(r"(.*\S)\s+\([^()]*\)$")


def storable(text: str) -> str:
    """`text` without lone surrogates, which no UTF-8 file or database can hold."""
    return text.encode("utf-8", "ignore").decode("utf-8")


def clean_title(text: str) -> str:
    """The title as shown: HTML entities read ("&amp;"), blanks collapsed. Titles in results have this form."""
    return " ".join(storable(html.unescape(text)).split())


def echo(argument: str) -> str:
    """The model's own argument as a message to it shows it."""
    return shorten(clean_title(argument), _ECHO_CHARS)


def fold(text: str) -> str:
    """For comparing: also without differences of case, width, quotes, dashes and underscores."""
    return clean_title(unicodedata.normalize("NFKC", clean_title(text)).translate(_QUOTES)).casefold()


def loose_key(text: str) -> str:
    """For guessing: only letters and digits, without accents. "" where a title has neither."""
    folded = unicodedata.normalize("NFKD", fold(text))
    return " ".join(re.findall(r"[^\W_]+", "".join(char for char in folded if not unicodedata.combining(char))))


def without_qualifier(title: str) -> str:
    """ "Jaws (film)" -> "Jaws"; other titles as they are."""
    match = _QUALIFIED.match(title)
    return match[1] if match else title
