import pytest

from agentrt_tools import clean_title
from agentrt_tools.titles import fold, loose_key, storable, without_qualifier


def test_a_title_is_shown_without_entities_and_odd_blanks() -> None:
    assert clean_title("  Brant &amp;\u00a0Sons\n") == "Brant & Sons"


@pytest.mark.parametrize("spelled", ["the_glass_tide", "THE GLASS  TIDE", "The Glass Tide ", "\uff34he Glass Tide"])
def test_case_blanks_and_width_do_not_matter(spelled: str) -> None:
    assert fold(spelled) == fold("The Glass Tide")


def test_quotes_and_dashes_of_any_kind_are_alike() -> None:
    assert fold("O\u2019Neil \u2013 \u201cNed\u201d") == fold('O\'Neil - "Ned"')


def test_the_loose_key_forgets_accents_and_punctuation() -> None:
    assert loose_key('"Café Zoë."') == loose_key("cafe zoe") == "cafe zoe"


def test_half_characters_are_dropped() -> None:
    assert storable("a\ud800b") == "ab"


def test_only_a_last_parenthesis_is_a_qualifier() -> None:
    assert without_qualifier("Jaws (film)") == "Jaws"
    assert without_qualifier("(No Pussyfooting)") == "(No Pussyfooting)"
    assert without_qualifier("3rd (Meerut) Brigade") == "3rd (Meerut) Brigade"
