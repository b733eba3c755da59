"""From the `use:` name of a team file to a tool. A new tool is one file and one line in `TOOLS`.

A tool's options are the keyword-only parameters of its constructor: their annotations give type and
rules, their defaults make them optional. A constructor that takes `corpus` gets the opened corpus.
"""

import inspect
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple, get_args, get_origin, get_type_hints

from agentrt_tools.base import Json, Tool
from agentrt_tools.corpus import open_corpus
from agentrt_tools.images import RecordedImages
from agentrt_tools.offline import OfflineLookup, OfflinePage, OfflineSearch
from agentrt_tools.options import DataFile, OneOf, Rule
from agentrt_tools.secrets import find_secret
from agentrt_tools.serper import SerperSearch
from agentrt_tools.wiki import WikipediaLookup, WikipediaPage, WikipediaSearch

TOOLS: Final[dict[str, type[Tool]]] = {
    "offline.search": OfflineSearch,
    "offline.page": OfflinePage,
    "offline.lookup": OfflineLookup,
    "serper.search": SerperSearch,
    "wikipedia.search": WikipediaSearch,
    "wikipedia.page": WikipediaPage,
    "wikipedia.lookup": WikipediaLookup,
    "scienceqa.image": RecordedImages,
}


class ToolOptionError(ValueError):
    """A tool or an option that does not exist, or a value that does not fit; `option` is None for the tool."""

    def __init__(self, message: str, option: str | None = None) -> None:
        super().__init__(message)
        self.option = option


class Option(NamedTuple):
    """One option of a tool: its type, further rules, and its default; `needed` where it has none."""

    type: type
    rules: tuple[Rule, ...] = ()
    default: Json = None
    needed: bool = False


def tool_options(use: str) -> dict[str, Option]:
    """The options of a tool by name. Raises ToolOptionError for a tool that does not exist."""
    init = _tool_class(use).__init__
    hints = get_type_hints(init, include_extras=True)
    return {
        name: _option(hints[name], parameter.default)
        for name, parameter in inspect.signature(init).parameters.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    }


def needs_corpus(use: str) -> bool:
    """Whether the tool reads a corpus file. Raises ToolOptionError for a tool that does not exist."""
    return "corpus" in inspect.signature(_tool_class(use).__init__).parameters


def missing_secrets(use: str) -> list[str]:
    """Names of the secrets that the tool needs and that neither the environment nor `.env` has."""
    needed: tuple[str, ...] = getattr(_tool_class(use), "secrets", ())
    return [name for name in needed if find_secret(name) is None]


def check_tool(use: str, options: Mapping[str, Json]) -> None:
    """Check name and options without opening anything. Raises ToolOptionError, which names the fix."""
    known = tool_options(use)
    for name, value in options.items():
        if name not in known:
            raise ToolOptionError(f"{use} has no option {name!r}{_suggest(name, known)}", name)
        expected, rules, *_ = known[name]
        # bool is an int in Python, never in a team file
        if not isinstance(value, expected) or (isinstance(value, bool) and expected is not bool):
            raise ToolOptionError(f"{use}: {name} must be {expected.__name__}, not {value!r}", name)
        for rule in rules:
            if fault := rule.fault(value):
                raise ToolOptionError(f"{use}: {name} must be {fault}, not {value!r}", name)
    if missing := [name for name, option in known.items() if option.needed and name not in options]:
        raise ToolOptionError(f"{use} needs the option {missing[0]!r}: add `{missing[0]}:` here")


def open_tool(
    use: str,
    options: Mapping[str, Json],
    *,
    corpus: Path | None = None,
    cache_dir: Path | None = None,
    root: Path | None = None,
) -> Tool:
    """Make the tool `use` with its options.

    `corpus` is the corpus file of the offline tools; tools on the same file share one index, kept under
    `cache_dir` (None: the user's cache folder). Options that name a file are relative to `root`. Raises
    ToolOptionError, and CorpusError for a bad corpus or data file.
    """
    check_tool(use, options)
    known = tool_options(use)
    given = {
        name: str((root or Path()) / str(value)) if DataFile() in known[name].rules else value
        for name, value in options.items()
    }
    make: Any = TOOLS[use]
    if not needs_corpus(use):
        return make(**given)  # type: ignore[no-any-return]  # the registry holds tools only
    if corpus is None:
        raise ToolOptionError(f"{use} reads a corpus file and none was given; name one with --corpus FILE")
    return make(open_corpus(corpus, cache_dir), **given)  # type: ignore[no-any-return]  # as above


def _tool_class(use: str) -> type[Tool]:
    if use not in TOOLS:
        raise ToolOptionError(f"there is no tool {use!r}{_suggest(use, TOOLS)}")
    return TOOLS[use]


def _option(hint: Any, default: Any) -> Option:
    rules: list[Rule] = []
    if get_origin(hint) is Annotated:
        hint, *rules = get_args(hint)
    if get_origin(hint) is Literal:
        hint, rules = str, [OneOf(get_args(hint)), *rules]
    needed = default is inspect.Parameter.empty
    return Option(hint, tuple(rules), None if needed else default, needed)


def _suggest(name: str, known: Mapping[str, object]) -> str:
    close = get_close_matches(name, known, n=1)
    did_you_mean = f", did you mean {close[0]!r}?" if close else ";"
    listed = ", ".join(sorted(known)) or "none"
    return f"{did_you_mean} known: {listed}"
