"""Action lines: the two grammars, every repair, and that no text whatever breaks them."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from agentrt.config.sections import DialectConfig
from agentrt.runtime.actions import NO_ACTION, PARSERS, Action, ParseFailure, parse_lenient, parse_strict

NAMES = ("BingSearch", "Retrieve", "Lookup", "Finish", "Reflect")


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("Search[the query]", Action("Search", "the query")),
        ("Retrieve[ Jaws [film] ]", Action("Retrieve", "Jaws [film]")),
        ("Finish[]", Action("Finish", "")),
    ],
)
def test_a_well_formed_action_is_read_without_repair(text: str, action: Action) -> None:
    assert parse_strict(text, DialectConfig()) == action
    assert parse_lenient(text, DialectConfig()) == action


@pytest.mark.parametrize("text", ["", "Search", "Search[x", "Search[x].", " Search[x]", "[x]", "Do it[x]", "A[x\ny]"])
def test_anything_else_is_a_strict_failure_with_a_reason(text: str) -> None:
    failure = parse_strict(text, DialectConfig())
    assert isinstance(failure, ParseFailure)
    assert failure.text == text
    assert failure.reason


def test_a_name_that_is_not_offered_is_a_failure_that_lists_those_that_are() -> None:
    failure = parse_strict("Calculate[2 + 2]", DialectConfig(), NAMES)
    assert isinstance(failure, ParseFailure)
    assert failure.reason == f"there is no action Calculate, write one of {', '.join(NAMES)}"


@pytest.mark.parametrize(
    ("text", "name", "argument", "repairs"),
    [
        (" Lookup[x] ", "Lookup", "x", {"spaces"}),
        ("Lookup[x].", "Lookup", "x", {"behind"}),
        ("Finish[Avatar] to finish the question.", "Finish", "Avatar", {"behind"}),
        ("Retrieve[Jamestown]]", "Retrieve", "Jamestown", {"behind"}),
        ("Lookup[ge", "Lookup", "ge", {"bracket"}),
        ("Lookup(ge)", "Lookup", "ge", {"bracket"}),
        ("Retrieve[Jaws [film]", "Retrieve", "Jaws [film", set()),
        ("Reflect Right", "Reflect", "Right", {"bracket"}),
        ("reflect: right", "Reflect", "right", {"bracket", "case"}),
        ("Bingsearch[seas]", "BingSearch", "seas", {"case"}),
        ("Bing Search[seas].", "BingSearch", "seas", {"spaces", "behind"}),
        ("Lookup [x]", "Lookup", "x", {"spaces"}),
        ("Let's use Reflect[right] to check.", "Reflect", "right", {"before", "behind"}),
        ("Action: Finish[42]", "Finish", "42", {"label"}),
        ("`Finish[42]`", "Finish", "42", {"before", "behind"}),
        ("Finish[a] and Finish[b]", "Finish", "a", {"behind"}),
        ("Finish[a\nb]", "Finish", "a b", set()),
        ("None", NO_ACTION, "", {"none"}),
        ("None. The task is complete.", NO_ACTION, "", {"none"}),
        ("(None. The simulation ends)", NO_ACTION, "", {"none"}),
        ("No action.", NO_ACTION, "", {"none"}),
        ("No response needed.", NO_ACTION, "", {"none"}),
    ],
)
def test_what_is_almost_an_action_is_read_and_its_repairs_are_named(
    text: str, name: str, argument: str, repairs: set[str]
) -> None:
    action = parse_lenient(text, DialectConfig(), NAMES)
    assert isinstance(action, Action)
    assert (action.name, action.argument, set(action.repairs)) == (name, argument, repairs)


@pytest.mark.parametrize(
    "text",
    ["", "   ", "Compare the lists", "Calculate[2]", "Finish the task and rest", "[x]", "Reflected right.", "]["],
)
def test_what_is_no_action_stays_a_failure(text: str) -> None:
    failure = parse_lenient(text, DialectConfig(), NAMES)
    assert isinstance(failure, ParseFailure)
    assert failure.reason


def test_parsers_are_found_by_name() -> None:
    assert {"strict": parse_strict, "lenient": parse_lenient} == PARSERS


PIECES = st.sampled_from([*NAMES, "none", "No action", "Action:", "[", "]", "(", ")", " ", ".", "\n", "-", "x", "\x00"])
TEXTS = st.one_of(st.text(max_size=60), st.lists(PIECES, max_size=12).map("".join))


@example("NONE(])0")
@given(TEXTS)
@settings(max_examples=10_000, deadline=None)
def test_no_text_breaks_a_grammar_and_what_is_read_can_be_read_again(text: str) -> None:
    dialect = DialectConfig()
    for names in (NAMES, ()):
        strict, action = parse_strict(text, dialect, names), parse_lenient(text, dialect, names)
        assert not isinstance(strict, Action) or isinstance(action, Action)
        if isinstance(action, Action) and action.name != NO_ACTION:
            assert not names or action.name in names
            again = parse_lenient(f"{action.name}[{action.argument}]", dialect, names)
            assert isinstance(again, Action)
            assert again.name == action.name


@pytest.mark.parametrize("text", ["[" * 50_000, "Finish" * 20_000, "Finish[" * 10_000, "] " * 50_000, "!" * 50_000])
@pytest.mark.timeout(20)
def test_hostile_text_takes_no_long_time(text: str) -> None:
    parse_lenient(text, DialectConfig(), NAMES)
