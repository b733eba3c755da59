"""A multiple-choice question as posed, and its letters read back."""

import pytest

from agentrt.questions.question import LETTERS, Lesson, Question, pose_choice, posed_letters
from agentrt_tools import one_line


@pytest.mark.parametrize("size", range(1, 8))
def test_the_letters_of_a_posed_question_are_read_back(size: int) -> None:
    choices = [f"choice\nnumber {n} (of {size})" for n in range(size)]
    text = pose_choice("Which?", choices, "A hint. Options: none (A) yet.", "A picture")
    assert posed_letters(text) == posed_letters(one_line(text)) == list(LETTERS[:size])


def test_five_options_have_the_letters_a_to_e() -> None:
    assert posed_letters(one_line(pose_choice("Which?", list("vwxyz")))) == ["A", "B", "C", "D", "E"]


@pytest.mark.parametrize("text", ["", "Who wrote it?", "What are the Options: many", "(A) or (B)?"])
def test_a_question_without_options_has_no_letters(text: str) -> None:
    assert posed_letters(text) == []


def test_what_only_training_reads_is_left_out_of_an_evaluation() -> None:
    question = Question("q", "b", "eval", "1-4", "choice", "Which?", "x", stem="Which?", lesson=Lesson("l", "s"))
    assert {"stem", "lesson"}.isdisjoint(question.for_evaluation())
    assert Question(**question.for_evaluation()).text == "Which?"
