import random
from collections.abc import Iterator

import pytest

from agentrt.config.flow import Emits
from agentrt.config.sections import DialectConfig
from agentrt.runtime.constraints import ChoiceConstraint, FieldConstraint, SpanConstraint
from agentrt.runtime.dialect import Renderer
from agentrt.runtime.trie import TokenTrie
from agentrt.testing import ByteTokenizer


@pytest.fixture
def renderer() -> Renderer:
    return Renderer(DialectConfig(), ByteTokenizer(".]", " the", "nn"))


def language(constraint: FieldConstraint, renderer: Renderer) -> dict[str, str]:
    """Every text the constraint allows, with what it reads back as."""

    def grow(generated: list[int]) -> Iterator[list[int]]:
        allowed = constraint.allowed(generated)
        if not allowed:
            yield generated
        assert len(set(allowed)) == len(allowed)
        for token_id in allowed:
            yield from grow([*generated, token_id])

    complete = list(grow([]))
    assert max(map(len, complete)) <= constraint.max_tokens
    return {renderer.tokenizer.decode(ids): constraint.read(ids).text for ids in complete}


def test_trie_walks_to_entries_and_keeps_the_first_of_equals() -> None:
    trie = TokenTrie([([1, 2], "a"), ([1, 2, 3], "b"), ([1, 2], "c")])
    node = trie.walk([1, 2])
    assert node is not None
    assert node.value == "a"
    assert list(node.children) == [3]
    assert trie.walk([2]) is None


@pytest.mark.parametrize("emits", ["argument", "verdict"])
def test_a_choice_allows_exactly_its_strings_closed(renderer: Renderer, emits: Emits) -> None:
    choices = ["yes", "yes sir", "Zoë Ünal 東京", "Jaws [film]", "yes"]
    constraint = ChoiceConstraint(renderer, emits, choices)
    assert language(constraint, renderer) == {f" {choice}]": choice for choice in choices}


def test_where_one_action_begins_another_the_marker_decides(renderer: Renderer) -> None:
    constraint = ChoiceConstraint(renderer, "action", ["Search", "SearchAll", "Finish"])
    assert language(constraint, renderer) == {" Search[": "Search", " SearchAll": "SearchAll", " Finish": "Finish"}
    assert constraint.read([*b" Search["]).tail == "["
    assert constraint.read([*b" SearchAll"]).tail == ""


def test_a_marker_of_several_tokens_is_written_whole() -> None:
    renderer = Renderer(DialectConfig(open="<<"), ByteTokenizer())
    constraint = ChoiceConstraint(renderer, "action", ["Go", "Gone"])
    assert language(constraint, renderer) == {" Go<<": "Go", " Gone": "Gone"}


def test_no_choice_at_all_is_refused(renderer: Renderer) -> None:
    with pytest.raises(ValueError, match="at least one"):
        ChoiceConstraint(renderer, "argument", [])


def test_a_whole_text_is_a_span_whatever_it_ends_with(renderer: Renderer) -> None:
    constraint = SpanConstraint(renderer, "argument", ["Who is it ?", "It is ..."], max_words=3)
    assert {"Who is it", "Who is it ?", "is it ?", "It is ..."} <= set(language(constraint, renderer).values())
    short = SpanConstraint(renderer, "argument", ["Who is it ?"], max_words=2)
    assert set(language(short, renderer).values()) == {"Who", "Who is", "is", "is it", "is it ?", "it", "it ?"}


def test_a_span_starts_and_ends_at_words(renderer: Renderer) -> None:
    constraint = SpanConstraint(renderer, "argument", ["(born 1946), an actor."], max_words=2)
    assert sorted(language(constraint, renderer).values()) == sorted(
        [
            *("born", "born 1946", "born 1946)", "1946", "1946)", "1946), an", "an", "an actor", "an actor."),
            *("actor", "actor."),
        ]
    )


def test_a_span_has_the_tokens_of_the_field_that_a_model_is_trained_on(renderer: Renderer) -> None:
    constraint = SpanConstraint(renderer, "argument", ["Anna is the one. D.C."])
    for answer in ("Anna", "the one.", "the one", "D.C.", "is the one. D.C"):
        gold = renderer.field("argument", answer)
        assert all(gold[n] in constraint.allowed(gold[:n]) for n in range(len(gold))), answer
        assert constraint.allowed(gold) == []
        assert constraint.read(gold).text == answer


def test_a_span_crosses_no_marker_and_no_text(renderer: Renderer) -> None:
    constraint = SpanConstraint(renderer, "argument", ["[1] Jaws [2] Up", "one"])
    assert set(language(constraint, renderer).values()) == {"1", "Jaws", "2", "Up", "one"}


def test_a_span_may_also_be_a_listed_word(renderer: Renderer) -> None:
    constraint = SpanConstraint(renderer, "argument", ["you"], also=["yes", "no"])
    assert language(constraint, renderer) == {" you]": "you", " yes]": "yes", " no]": "no"}
    assert language(SpanConstraint(renderer, "argument", [], also=["no"]), renderer) == {" no]": "no"}


def test_words_keep_what_stands_inside_them(renderer: Renderer) -> None:
    constraint = SpanConstraint(renderer, "argument", ['don\'t pay $1,000 to Saint-Étienne or "Up"'], max_words=1)
    assert {"don't", "$1,000", "1,000", "Saint", "Étienne", '"Up"', "Up"} <= set(
        language(constraint, renderer).values()
    )


def test_spans_fit_the_token_limit_and_words_that_do_not_are_left_out(renderer: Renderer) -> None:
    constraint = SpanConstraint(renderer, "argument", ["a bb incomprehensibilities"], max_tokens=6)
    assert set(language(constraint, renderer).values()) == {"a", "bb", "a bb"}


def test_no_text_makes_an_empty_span(renderer: Renderer) -> None:
    assert SpanConstraint(renderer, "argument", ["[] ..."]).empty
    assert not SpanConstraint(renderer, "argument", [], also=["no"]).empty


def test_a_span_over_long_observations_is_one_of_their_own(renderer: Renderer) -> None:
    dice = random.Random(0)
    words = ["the", *("".join(dice.choices("abcdefgh", k=5)) for _ in range(300))]
    texts = [" ".join(dice.choices(words, k=100)) for _ in range(20)]
    constraint = SpanConstraint(renderer, "argument", texts)
    generated: list[int] = []
    while allowed := constraint.allowed(generated):
        generated.append(dice.choice(list(allowed)))
    assert constraint.read(generated).text in " ".join(texts)
