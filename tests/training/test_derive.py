"""Derived trajectories are the runtime's own, teach both verdicts, and come out the same every time."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from agentrt.builtin import agents_dir, configs_dir
from agentrt.config.team import Override, Team
from agentrt.errors import ConfigError, DataError, UsageError
from agentrt.runtime.dialect import Renderer
from agentrt.training.derive import derive
from agentrt.training.examples import Recorded, role_example
from agentrt.training.job import Source, derive_data, load_data
from agentrt.training.retry import with_retry
from agentrt.training.sources import GoldQuestion, read_questions
from agentrt_tools.corpus import open_corpus
from tests.training.teams import WordTokenizer, search_team

ARTICLES = configs_dir() / "mini" / "articles.jsonl"
QUESTIONS = configs_dir() / "mini" / "questions.jsonl"
WORDS = WordTokenizer()


@pytest.fixture(scope="module")
def questions() -> list[GoldQuestion]:
    usable, skipped = read_questions(QUESTIONS, open_corpus(ARTICLES), split="train")
    assert not skipped
    return usable


@pytest.fixture(scope="module")
def recorded(questions: list[GoldQuestion]) -> list[Recorded]:
    derived = derive(search_team(), WORDS, questions[:6] + questions[-6:], ARTICLES, variants=4)
    return [one.recorded for one in derived if one.recorded is not None]


def fields(one: Recorded, kind: str) -> list[tuple[str, bool]]:
    """The generated fields of a kind, as text, and whether they are taught."""
    text = WORDS.decode
    return [
        (text(one.token_ids[span.start : span.end]).strip(), span.taught) for span in one.spans if span.kind == kind
    ]


def test_a_trajectory_is_text_of_the_teams_dialect(recorded: list[Recorded]) -> None:
    team = search_team()
    renderer = Renderer(team.dialect, WORDS)
    for one in recorded:
        ids = list(one.token_ids)
        assert ids[: one.spans[0].end] == renderer.preamble(team.preamble)
        assert [span.end for span in one.spans[:-1]] == [span.start for span in one.spans[1:]]
        assert one.spans[-1].end == len(ids)
        for span in one.spans:
            if span.author in team.roles:
                text = WORDS.decode(ids[span.start : span.end])
                field = text.strip().removesuffix(renderer.terminator(span.kind).strip())  # type: ignore[arg-type]
                assert ids[span.start : span.end] == renderer.field(span.kind, field)  # type: ignore[arg-type]


def test_every_role_learns_its_own_fields_only(recorded: list[Recorded]) -> None:
    for one in recorded:
        assert one.question_id in WORDS.decode(one.token_ids), "the split goes by the question's text"
        for role in ("plan", "action", "reflect"):
            example = role_example(one, role)
            assert example is not None
            own = {p for span in one.spans if span.author == role for p in range(span.start, span.end)}
            assert set(example.targets) <= own


def test_the_roles_own_rows_are_a_partition_of_what_is_processed(recorded: list[Recorded]) -> None:
    for one in recorded:
        everything = Recorded(one.id, one.question_id, one.token_ids, tuple(s._replace(taught=True) for s in one.spans))
        examples = [role_example(everything, role) for role in ("plan", "action", "reflect")]
        rows = sorted(row for example in examples if example is not None for row in example.own_rows)
        last = max(span.end for span in one.spans if span.kind == "verdict")
        assert rows == list(range(last - 1))


def test_both_verdicts_occur_and_follow_from_the_answer(
    recorded: list[Recorded], questions: list[GoldQuestion]
) -> None:
    gold = {question.question: question for question in questions}
    verdicts = []
    for one in recorded:
        [(verdict, _)] = fields(one, "verdict")
        answer = fields(one, "argument")[-1][0].removesuffix("]")
        assert (verdict == "right]") == (answer.lower() == gold[one.question_id].answer.lower())
        verdicts.append(verdict)
    assert {"right]", "wrong]"} == set(verdicts)


def test_mistakes_are_shown_but_not_taught(recorded: list[Recorded]) -> None:
    by_detour = {one.id.rpartition("-")[2]: one for one in recorded if one.question_id == recorded[0].question_id}
    assert set(by_detour) == {"none", "middle", "last", "wrong"}
    untaught = {
        name: [text for text, taught in fields(one, "thought") if not taught] for name, one in by_detour.items()
    }
    assert untaught["none"] == []
    assert all(len(untaught[name]) == 1 for name in ("middle", "last", "wrong"))


def test_a_team_that_tries_again_learns_to_go_on_after_a_wrong_answer(questions: list[GoldQuestion]) -> None:
    once, again = (
        {
            one.recorded.id: one.recorded
            for one in derive(team, WORDS, questions[:3], ARTICLES, variants=4)
            if one.recorded is not None
        }
        for team in (search_team(), with_retry(search_team()))
    )
    assert once.keys() == again.keys()
    for name, one in again.items():
        if not name.endswith("-wrong"):
            assert one == once[name]
            continue
        assert [text for text, _ in fields(one, "verdict")] == ["wrong]", "right]"]
        assert one.token_ids[: len(once[name].token_ids)] == once[name].token_ids, "the same up to the verdict"
        thought, taught = fields(one, "thought")[-2]
        assert thought.startswith("That was wrong. ")
        assert taught
        assert [text for text, _ in fields(one, "action")][-2:] == ["Finish", "Finish"]


def test_derivation_is_deterministic_and_the_seed_changes_it(questions: list[GoldQuestion]) -> None:
    runs = [
        [one.recorded for one in derive(search_team(), WORDS, questions[:3], ARTICLES, variants=2, seed=seed)]
        for seed in (0, 0, 1)
    ]
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]


def test_a_team_whose_roles_share_a_path_is_taught_the_same(questions: list[GoldQuestion]) -> None:
    adapters = [Override(("roles", role, "adapter"), role, "the test") for role in ("plan", "action", "reflect")]
    starter = configs_dir() / "starter" / "team.yaml"
    none, some, all_ = (
        [one.recorded for one in derive(team, WORDS, questions[:3], ARTICLES, variants=2) if one.recorded is not None]
        for team in (Team.load(starter, overrides=adapters[:at], need_adapters=False) for at in (0, 1, 3))
    )
    assert none
    assert [one.token_ids for one in none] == [one.token_ids for one in some] == [one.token_ids for one in all_]
    assert [role_example(one, "plan") for one in some] == [role_example(one, "plan") for one in all_]
    assert {span.author for one in none for span in one.fields} == {""}
    assert {span.author for one in some for span in one.fields} == {"", "plan"}


def test_one_role_that_plans_and_judges_is_taught_both(questions: list[GoldQuestion], tmp_path: Path) -> None:
    text = (configs_dir() / "starter" / "team.yaml").read_text()
    for role in ("plan", "action", "reflect"):
        text = text.replace(f"role: {role}", "role: agent")
    head, _, rest = text.partition("roles:\n")
    agent = "roles:\n  agent: {adapter: none, sampling: {max_new_tokens: 48}}\n\n"
    (tmp_path / "team.yaml").write_text(f"{head}{agent}{rest[rest.index('tools:') :]}")
    alone = derive(with_retry(Team.load(tmp_path / "team.yaml")), WORDS, questions[:3], ARTICLES, variants=4)
    three = derive(with_retry(Team.load(configs_dir() / "starter")), WORDS, questions[:3], ARTICLES, variants=4)
    texts = [[one.recorded.token_ids if one.recorded else one.skipped for one in each] for each in (alone, three)]
    assert texts[0] == texts[1]


def test_a_team_that_does_not_begin_with_a_thought_is_refused(tmp_path: Path) -> None:
    text = (configs_dir() / "starter" / "team.yaml").read_text().replace("start: think", "start: decide")
    (tmp_path / "team.yaml").write_text(text)
    with pytest.raises(ConfigError, match="begins with action; train it from") as caught:
        next(derive(Team.load(tmp_path / "team.yaml"), WORDS, [], ARTICLES))
    assert caught.value.problems[0].line == 23


def test_a_question_that_cannot_be_played_is_skipped_with_its_reason(questions: list[GoldQuestion]) -> None:
    lost = replace(questions[0], id="lost", question="Qwxyz?", place="q.jsonl:7")
    [one] = derive(search_team(), WORDS, [lost], ARTICLES)
    assert one.recorded is None
    assert one.skipped is not None
    assert one.skipped.place == "q.jsonl:7"
    assert one.skipped.reason.startswith("its page is neither listed nor mentioned: ")
    [short] = derive(search_team(max_steps=2), WORDS, questions[:1], ARTICLES)
    assert short.skipped is not None
    assert short.skipped.reason == "its episode ended as limit:steps"


def test_a_team_without_search_is_refused() -> None:
    team = search_team()
    node = team.flow.nodes["decide"].model_copy(update={"choices": ("Look", "Finish")})
    other = team.model_copy(
        update={"flow": team.flow.model_copy(update={"nodes": {**team.flow.nodes, "decide": node}})}
    )
    with pytest.raises(UsageError, match="offers no Retrieve, Search"):
        next(derive(other, WORDS, [], agents_dir()))


def test_derived_data_is_written_with_its_facts_and_read_back(tmp_path: Path) -> None:
    source = Source(QUESTIONS, ARTICLES)
    facts = derive_data(search_team(), WORDS, [source], tmp_path, limit=2)
    recorded, read = load_data(tmp_path)
    assert read == facts
    assert facts["trajectories"] == len(recorded) == 2
    assert [file["name"] for file in facts["files"]] == ["questions.jsonl", "articles.jsonl"]
    assert str(tmp_path) not in json.dumps(facts)


def test_no_trajectory_at_all_is_an_error(tmp_path: Path) -> None:
    source = Source(QUESTIONS, ARTICLES)
    with pytest.raises(DataError, match="nothing gave a trajectory"):
        derive_data(search_team(max_steps=1), WORDS, [source], tmp_path, limit=2)
    with pytest.raises(UsageError, match="run train with --derive, "):
        load_data(tmp_path)
