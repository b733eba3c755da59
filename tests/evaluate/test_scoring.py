"""Scores follow HotpotQA's script, but for the traps it leaves open; letters are compared as letters."""

import pytest

from agentrt.evaluate.scoring import WRONG, Score, choice_letter, guess_baseline, normalise, score, score_text
from agentrt.questions.question import Question


def question(answer: str = "Cincinnati", choices: tuple[str, ...] = (), letter: str = "") -> Question:
    kind = "choice" if choices else "bridge"
    return Question("q", "mini", "eval", "easy", kind, "?", answer, choices=choices, letter=letter)


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("The Ohio River.", "ohio river"),
        ("  an   apple,\ta day ", "apple day"),
        ("U.S.A.", "usa"),
        ("state-of-the-art", "stateoftheart"),  # punctuation goes before articles
        ("a-b", "ab"),
        ("Theatre Anna", "theatre anna"),
        ("A", ""),
        ("the a an", ""),
        ("Três Corações", "três corações"),
        ("“quoted”", "“quoted”"),  # only ASCII punctuation
        ("1,580", "1580"),
        ("", ""),
    ],
)
def test_normalisation_lowers_drops_punctuation_then_articles(text: str, normal: str) -> None:
    assert normalise(text) == normal


@pytest.mark.parametrize(
    ("prediction", "gold", "correct", "f1"),
    [
        ("Cincinnati", "Cincinnati", True, 1.0),
        ("the cincinnati.", "Cincinnati", True, 1.0),
        ("Cincinnati, Ohio", "Cincinnati", False, 2 / 3),
        ("Ohio", "Ohio River", False, 2 / 3),
        ("river ohio", "Ohio River", False, 1.0),
        ("new york new york", "New York", False, 2 / 3),
        ("a b c d", "b x y", False, 2 * (1 / 3) * (1 / 3) / (2 / 3)),
        ("Paris", "Rome", False, 0.0),
        ("yes", "Yes", True, 1.0),
        ("Yes.", "yes", True, 1.0),
        ("yes they are", "yes", False, 0.0),
        ("no", "no way", False, 0.0),
        ("yes", "no", False, 0.0),
        ("noanswer", "no answer given", False, 0.0),
        ("noanswer", "noanswer", True, 1.0),
        ("yes indeed", "yes it is", False, 0.4),  # all or nothing only for the bare words
        ("", "Cincinnati", False, 0.0),
        ("   ", "A", False, 0.0),
        ("", "A", False, 0.0),
        ("", "", False, 0.0),
        ("A", "A", True, 1.0),
        ("a", "A", True, 1.0),
        ("the", "A", False, 0.0),
        ("B", "A", False, 0.0),
        ("the", "Rome", False, 0.0),
        ("...", "Rome", False, 0.0),
        ("TRÊS CORAÇÕES!", "Três Corações", True, 1.0),
        ("Tres Coracoes", "Três Corações", False, 0.0),  # accents count
        ("“Rome”", "Rome", False, 0.0),  # only ASCII punctuation is dropped
        ("Rome\u00a0Italy", "Rome Italy", True, 1.0),
    ],
)
def test_text_is_scored_by_exact_match_and_f1(prediction: str, gold: str, correct: bool, f1: float) -> None:
    result = score_text(prediction, gold)
    assert result.correct is correct
    assert result.f1 == pytest.approx(f1)


ANIMALS = ("a bat", "an eagle", "a frog", "E. coli")


@pytest.mark.parametrize(
    ("prediction", "letter"),
    [
        ("A", "A"),
        ("b", "B"),
        ("(C)", "C"),
        ("D.", "D"),
        (" c: ", "C"),
        ("(B) an eagle", "B"),
        ("B) an eagle", "B"),
        ("b. eagle", "B"),
        ("C: the frog", "C"),
        ("a bat", "A"),
        ("A  Bat.", "A"),
        ("AN EAGLE", "B"),
        ("E. coli", "D"),  # the text of a choice, not the letter E
        ("a frog or a bat", None),
        ("A bird", None),
        ("eagle", None),
        ("E", None),
        ("(E) a fish", None),
        ("", None),
        ("AB", None),
        ("B or C", None),
    ],
)
def test_a_choice_is_read_from_its_letter_or_its_text(prediction: str, letter: str | None) -> None:
    assert choice_letter(prediction, ANIMALS) == letter


def test_a_letter_wins_over_a_choice_that_looks_like_one() -> None:
    assert choice_letter("A", ("B", "A")) == "A"


def test_text_that_two_choices_share_names_neither() -> None:
    assert choice_letter("mice", ("Mice", "mice.", "mouse")) is None


def test_choices_that_differ_in_case_alone_are_read_as_they_stand() -> None:
    choices = ("dear Reggie,", "Dear Reggie,")
    assert [choice_letter(text, choices) for text in (*choices, "DEAR REGGIE,")] == ["A", "B", None]


def test_letters_are_compared_as_letters() -> None:
    gold = question("a bat", ANIMALS, "A")
    assert score(gold, "A") == Score(correct=True, f1=1.0)
    assert score(gold, "a bat") == Score(correct=True, f1=1.0)
    assert score(gold, "B") == WRONG
    assert score(gold, "") == WRONG
    assert score(gold, "bat") == WRONG
    assert score(gold, "no") == WRONG


def test_an_unfinished_or_missing_answer_is_wrong() -> None:
    for gold, answer in ((question(), "Cincinnati"), (question("a bat", ANIMALS, "A"), "A")):
        assert score(gold, answer).correct
        assert score(gold, answer, finished=False) == WRONG
        assert score(gold, None) == WRONG


def test_a_free_answer_is_scored_as_text() -> None:
    assert score(question("Ohio River"), "Ohio").f1 == pytest.approx(2 / 3)


def test_the_guess_baseline_is_the_most_frequent_letter() -> None:
    rows = [question("x", ("x", "y"), letter) for letter in "BABA"] + [question("x", ("y", "x"), "B"), question()]
    baseline = guess_baseline(rows)
    assert baseline is not None
    assert baseline == ("B", 0.6)
    assert guess_baseline(rows[:4]) == ("A", 0.5)  # ties go to the first letter
    assert guess_baseline([question()]) is None
