import pytest

from agentrt_tools.mentions import MentionIndex


def test_the_longest_title_is_the_one_mentioned() -> None:
    index = MentionIndex(["Port", "Port Ellow", "Port Ellow Harbour"])
    assert index.find("He left Port Ellow for a Port.") == ["Port Ellow", "Port"]


def test_mentions_are_whole_words_in_the_case_of_the_title() -> None:
    assert MentionIndex(["Port"]).find("Portugal, a port, Airport") == []


def test_possessives_and_punctuation_do_not_hide_a_title() -> None:
    index = MentionIndex(["Mara Quill", "Alt-J", "Who's There?"])
    assert index.find("\"Mara Quill\"'s Alt-J, Who's There?") == ["Mara Quill", "Alt-J", "Who's There?"]


def test_a_name_without_its_qualifier_mentions_all_that_bear_it_the_exact_one_first() -> None:
    index = MentionIndex(["Jaws (film)", "Jaws (novel)", "Jaws"])
    assert index.find("She saw Jaws.") == ["Jaws", "Jaws (film)", "Jaws (novel)"]


def test_a_year_does_not_mention_a_song() -> None:
    assert MentionIndex(["1979 (song)"]).find("It was in 1979.") == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("She lives in the United States.", False),
        ("He founded Air United in 1990.", False),
        ("They won. United they stood.", False),
        ("United is all there is", False),
        ("Their album United sold well.", True),
        ('Their album "United" sold well.', True),
        ("They played for United, then left.", True),
    ],
)
def test_one_word_before_a_qualifier_is_no_part_of_a_longer_name_and_no_start_of_a_sentence(
    text: str, found: bool
) -> None:
    assert MentionIndex(["United (album)"]).find(text) == ["United (album)"] * found
    assert MentionIndex(["United (album)", "United"]).find(text) == ["United", "United (album)"]


def test_each_title_comes_once_and_an_empty_one_never() -> None:
    assert MentionIndex(["A", " "]).find("A and A") == ["A"]
