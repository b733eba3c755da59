"""The science team's trajectories: lessons are found, read and quoted, and reflect learns both verdicts."""

from dataclasses import replace
from pathlib import Path

import pytest

from agentrt.builtin import configs_dir
from agentrt.config.team import Override, Team
from agentrt.runtime.dialect import Renderer
from agentrt.testing import ByteTokenizer
from agentrt.training.derive import Derived, derive
from agentrt.training.examples import Recorded
from agentrt.training.sources import LessonQuestion, TaughtQuestion, read_questions
from agentrt.training.team_files import files_of
from agentrt_tools.corpus import open_corpus

TEXT = ByteTokenizer().decode
MINI = configs_dir() / "mini" / "science.jsonl"


def science_team(*changes: Override) -> Team:
    """The shipped team, with limits for a tokenizer of single bytes."""
    values = [
        Override(("roles", role, "sampling", "max_new_tokens"), 320, "the test")
        for role in ("plan", "action", "reflect")
    ]
    values.append(Override(("limits", "max_observation_tokens"), 900, "the test"))
    return Team.load("science", overrides=[*values, *changes], need_adapters=False)


CORPUS = science_team().corpus_file
assert CORPUS is not None


def derived(*questions: TaughtQuestion, team: Team | None = None, variants: int = 4) -> list[Derived]:
    assert CORPUS is not None
    return list(derive(team or science_team(), ByteTokenizer(), questions, CORPUS, variants=variants))


def by_detour(*questions: TaughtQuestion, team: Team | None = None) -> dict[str, Recorded]:
    found = [one.recorded for one in derived(*questions, team=team) if one.recorded is not None]
    return {one.id.rpartition("-")[2]: one for one in found}


def fields(one: Recorded, kind: str) -> list[str]:
    return [TEXT(one.token_ids[span.start : span.end]).strip() for span in one.spans if span.kind == kind]


def untaught(one: Recorded) -> list[str]:
    return [TEXT(one.token_ids[s.start : s.end]).strip() for s in one.spans if not s.taught]


@pytest.fixture(scope="module")
def asked() -> list[LessonQuestion]:
    """Every question that the shipped team is trained on."""
    questions: list[LessonQuestion] = []
    for source in files_of(science_team()):
        usable, skipped = read_questions(source.questions, open_corpus(source.corpus), split="train")
        assert not skipped
        questions += [question for question in usable if isinstance(question, LessonQuestion)]
    return questions


def named(asked: list[LessonQuestion], text: str) -> LessonQuestion:
    return next(question for question in asked if text in question.question)


@pytest.fixture
def lizard(asked: list[LessonQuestion]) -> LessonQuestion:
    return named(asked, "To which group does a lizard belong?")


def test_the_shipped_team_learns_lessons_and_the_mini_benchmarks_questions(asked: list[LessonQuestion]) -> None:
    assert [source.questions for source in files_of(science_team())][1].resolve() == MINI.resolve()
    assert sum(question.page is not None for question in asked) > 300
    assert sum(question.id.startswith("mini-sci-train") for question in asked) == 24


def test_the_lecture_is_searched_read_and_quoted(lizard: LessonQuestion) -> None:
    one = by_detour(lizard)["none"]
    assert fields(one, "action") == ["Search", "Retrieve", "Finish"]
    query, page, letter = fields(one, "argument")
    assert query == "To which group does a lizard belong? It is ...]"
    assert page == f"{lizard.page}]"
    assert letter == f"{lizard.letter}]"
    answering = fields(one, "thought")[2]
    assert answering.startswith(f'{lizard.page} says "A reptile has dry scaly skin')
    assert answering.endswith(f"The answer is {lizard.letter}.")
    assert fields(one, "thought")[3] == f"A lizard is a reptile. So {lizard.letter} is right."
    assert untaught(one) == []


def test_a_wrong_ending_is_judged_wrong_and_its_mistake_is_not_taught(lizard: LessonQuestion) -> None:
    one = by_detour(lizard)["wrong"]
    wrong = fields(one, "argument")[-1].removesuffix("]")
    assert wrong != lizard.letter
    assert fields(one, "verdict") == ["wrong]"]
    assert fields(one, "thought")[-1] == f"A lizard is a reptile. So {wrong} is wrong."
    [mistake] = untaught(one)
    assert mistake.endswith(f'That is "{lizard.choice(wrong)}". The answer is {wrong}.')


def test_pages_that_do_not_help_are_got_over(asked: list[LessonQuestion]) -> None:
    question = named(asked, "Which is a run-on sentence?")
    found = by_detour(question)
    for name in ("middle", "last"):
        assert fields(found[name], "action") == ["Search", "Retrieve", "Retrieve", "Finish"]
        [mistake] = untaught(found[name])
        assert "I read" in mistake
    assert "does not help. I read" in fields(found["middle"], "thought")[2]
    assert fields(found["last"], "thought")[3].startswith(f'{question.page} says "A run-on sentence joins')


def test_with_a_retry_a_wrong_answer_is_followed_by_the_right_one(lizard: LessonQuestion) -> None:
    again = Override(("flow", "nodes", "verdict", "next", "wrong"), "think", "the test")
    one = by_detour(lizard, team=science_team(again))["wrong"]
    assert fields(one, "verdict") == ["wrong]", "right]"]
    assert fields(one, "argument")[-1] == f"{lizard.letter}]"
    assert fields(one, "thought")[4].startswith("That was wrong. A lizard is a reptile.")


def test_without_a_page_the_solution_speaks(asked: list[LessonQuestion]) -> None:
    question = named(asked, "Which ecosystem has dry sandy soil")
    assert question.page is None
    found = by_detour(question)
    assert fields(found["none"], "thought")[1].startswith("No lesson helps. This is what a desert has.")
    assert "does not help. This is what" in fields(found["middle"], "thought")[2]


def test_every_right_field_has_the_tokens_of_the_dialect(asked: list[LessonQuestion]) -> None:
    renderer = Renderer(science_team().dialect, ByteTokenizer())
    for one in derived(*asked[::40], variants=2):
        assert one.recorded is not None, one.skipped
        for span in one.recorded.fields:
            ids = list(one.recorded.token_ids[span.start : span.end])
            field = TEXT(ids).strip().removesuffix(renderer.terminator(span.kind).strip())  # type: ignore[arg-type]
            assert ids == renderer.field(span.kind, field)  # type: ignore[arg-type]


def test_a_reason_that_is_too_long_is_cut_and_a_page_too_long_is_a_reason_to_skip(lizard: LessonQuestion) -> None:
    long = replace(lizard, solution=f"{'Because ' * 60}a lizard is a reptile.")
    assert fields(by_detour(long)["none"], "thought")[2].endswith(f"The answer is {lizard.letter}.")
    short = science_team(Override(("roles", "plan", "sampling", "max_new_tokens"), 60, "the test"))
    [one] = derived(lizard, team=short, variants=1)
    assert one.skipped is not None
    assert one.skipped.reason == "its reason and page are too long for a thought"


def test_a_question_without_a_solution_is_skipped_by_name(tmp_path: Path) -> None:
    assert CORPUS is not None
    row = (
        '{"id": "s1", "benchmark": "mini-science", "grade": 2, "question": "Q?", "choices": ["a", "b"], "answer": "B"}'
    )
    (tmp_path / "q.jsonl").write_text(row + "\n")
    usable, [skipped] = read_questions(tmp_path / "q.jsonl", open_corpus(CORPUS))
    assert not usable
    assert (skipped.id, skipped.reason) == ("s1", "it has no solution")
    assert skipped.place.endswith("q.jsonl:1")
