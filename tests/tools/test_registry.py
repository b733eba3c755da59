import json
from pathlib import Path

import pytest

from agentrt_tools import (
    TOOLS,
    Json,
    OfflinePage,
    Option,
    ToolOptionError,
    check_tool,
    needs_corpus,
    open_tool,
    tool_options,
)
from agentrt_tools.options import AtLeast


@pytest.mark.parametrize("use", TOOLS)
def test_every_tool_opens_under_its_name(use: str, corpus_file: Path, tmp_path: Path) -> None:
    row = {"question": "What is it?", "choices": ["a", "b"], "caption": "A cat.", "ocr": "[]"}
    (tmp_path / "images.jsonl").write_text(json.dumps(row))
    options: dict[str, Json] = {name: "images.jsonl" for name, option in tool_options(use).items() if option.needed}
    tool = open_tool(use, options, corpus=corpus_file, cache_dir=tmp_path / "cache", root=tmp_path)
    assert tool.name == use


def test_tools_on_one_file_share_its_index_and_take_their_options(corpus_file: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    page = open_tool("offline.page", {"links": 1}, corpus=corpus_file, cache_dir=cache)
    lookup = open_tool("offline.lookup", {}, corpus=corpus_file, cache_dir=cache)
    opened = page("Mara Quill", {}, question="film")
    assert isinstance(page, OfflinePage)
    assert opened.text.endswith(" Links: The Glass Tide (film)")
    assert lookup("1987", opened.state).text == "(Result 1 / 1) She directed The Glass Tide in 1987."
    assert len(list(cache.iterdir())) == 1


def test_options_are_listed_with_type_range_and_default() -> None:
    assert tool_options("offline.search") == {
        "k": Option(int, (AtLeast(1),), 4),
        "snippet_chars": Option(int, (AtLeast(0),), 160),
    }
    assert tool_options("offline.lookup") == {}
    assert needs_corpus("offline.lookup")


@pytest.mark.parametrize(
    ("use", "options", "option", "says"),
    [
        ("offline.serch", {}, None, "there is no tool 'offline.serch', did you mean 'offline.search'?"),
        ("zzz", {}, None, "known: offline.lookup, offline.page, offline.search, scienceqa.image"),
        ("offline.page", {"link": 2}, "link", "offline.page has no option 'link', did you mean 'links'?"),
        ("offline.lookup", {"k": 2}, "k", "known: none"),
        ("offline.search", {"k": 0}, "k", "k must be at least 1, not 0"),
        ("offline.search", {"k": "4"}, "k", "k must be int, not '4'"),
        ("offline.search", {"k": True}, "k", "k must be int, not True"),
        ("serper.search", {"style": "bing"}, "style", "style must be one of react, autoact, not 'bing'"),
        ("wikipedia.page", {"language": "en.evil/"}, "language", "must be the language code of a Wikipedia"),
        ("serper.search", {"country": "usa"}, "country", "country must be a code of two letters"),
        ("scienceqa.image", {}, None, "scienceqa.image needs the option 'captions'"),
        ("scienceqa.image", {"captions": ""}, "captions", "captions must be the path of a file"),
    ],
)
def test_a_tool_or_option_that_does_not_fit_is_named_with_the_fix(
    use: str, options: dict[str, Json], option: str | None, says: str
) -> None:
    with pytest.raises(ToolOptionError) as caught:
        check_tool(use, options)
    assert isinstance(caught.value, ValueError)
    assert caught.value.option == option
    assert says in str(caught.value)


def test_a_tool_without_its_corpus_says_so() -> None:
    with pytest.raises(ToolOptionError, match="--corpus FILE"):
        open_tool("offline.page", {})
