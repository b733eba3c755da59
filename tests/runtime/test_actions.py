import pytest

from agentrt.config.sections import DialectConfig
from agentrt.runtime.actions import PARSERS, Action, ParseFailure, parse_strict


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("Search[the query]", Action("Search", "the query")),
        ("Retrieve[ Jaws [film] ]", Action("Retrieve", "Jaws [film]")),
        ("Finish[]", Action("Finish", "")),
    ],
)
def test_a_well_formed_action_is_read(text: str, action: Action) -> None:
    assert parse_strict(text, DialectConfig()) == action


@pytest.mark.parametrize("text", ["", "Search", "Search[x", "Search[x].", " Search[x]", "[x]", "Do it[x]", "A[x\ny]"])
def test_anything_else_is_a_failure_with_a_reason(text: str) -> None:
    failure = parse_strict(text, DialectConfig())
    assert isinstance(failure, ParseFailure)
    assert failure.text == text
    assert failure.reason


def test_parsers_are_found_by_name() -> None:
    assert PARSERS["strict"] is parse_strict
