"""An evaluation: same results at any concurrency, rows that score again, folders that go on, failures that show."""

import json
import random
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentrt.errors import DataError, EngineClosedError, RunBusyError, UsageError
from agentrt.evaluate.evaluation.folder import ROWS, EvalFolder, read_rows
from agentrt.evaluate.evaluation.job import run_episodes
from agentrt.evaluate.evaluation.plan import EvalPlan, Key, episode_seed, pick
from agentrt.evaluate.evaluation.row import EpisodeRow
from agentrt.evaluate.evaluation.summary import summarise
from agentrt.evaluate.statistics import bootstrap_mean
from agentrt.questions.datasets import load_questions
from agentrt.questions.question import Question
from agentrt.runtime.episode import Runtime
from agentrt.runtime.saved import Resources
from agentrt.testing import FakeTool, ScriptedEngine
from agentrt_tools import ToolFailed
from tests.crew import EVERY_SCHEME, may_search, short_team

from .conftest import OpenRuntime
from .rows import costly, row, rows_of, same_part

MINI = tuple(load_questions("mini"))


FEW = ("pre_lr_shared", "rebase_shared:lp")
OTHERS = (pytest.param(scheme, marks=pytest.mark.slow) for scheme in EVERY_SCHEME if scheme not in FEW)


@pytest.mark.parametrize("scheme", [*FEW, *OTHERS])
def test_concurrency_and_order_change_no_episode(open_runtime: OpenRuntime, scheme: str) -> None:
    by_key = play_alone_and_together(open_runtime(scheme), MINI[:5], repeats=2)
    assert len(by_key) == 10
    first, again = by_key[Key(MINI[0].id, 0)], by_key[Key(MINI[0].id, 1)]
    assert first["result"]["spans"] != again["result"]["spans"], "a repeat has a seed of its own"


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["rebase_shared:auto", "cacheblend"])
def test_concurrency_changes_no_episode_of_the_whole_benchmark(open_runtime: OpenRuntime, scheme: str) -> None:
    everything = tuple(load_questions("mini", split=None))
    assert len(everything) > len(MINI)
    assert len(play_alone_and_together(open_runtime(scheme), everything, repeats=1)) == len(everything)


def play_alone_and_together(runtime: Runtime, questions: tuple[Question, ...], repeats: int) -> dict[Key, Any]:
    """What an episode has in common with itself, one after another and four at a time in another order: the same."""
    alone = rows_of(runtime, EvalPlan("mini", questions, repeats=repeats))
    shuffled = list(questions)
    random.Random(1).shuffle(shuffled)
    together = rows_of(runtime, EvalPlan("mini", tuple(shuffled), repeats=repeats, concurrency=4))
    by_key = {row.key: same_part(row) for row in together}
    assert {row.key: same_part(row) for row in alone} == by_key
    return by_key


def test_a_seed_depends_on_question_repeat_and_seed_alone() -> None:
    assert episode_seed(0, "a", 0) == episode_seed(0, "a", 0)
    seeds = {episode_seed(seed, name, repeat) for seed in (0, 1) for name in ("a", "b") for repeat in (0, 1)}
    assert len(seeds) == 8
    assert all(0 <= seed < 2**32 for seed in seeds)


def test_an_episode_that_breaks_is_a_row_and_the_others_go_on() -> None:
    asked: list[str] = []

    def write(adapter: str, field: Any, so_far: str) -> str:
        if MINI[1].text in so_far:
            raise RuntimeError("no luck")
        asked.append(so_far)
        return {"thought": "So.", "action": "Finish", "argument": "yes", "verdict": "right"}[field]

    runtime = Runtime(short_team(), engine=ScriptedEngine(write), tools={name: FakeTool(name) for name in TOOLS})
    rows = rows_of(runtime, EvalPlan("mini", MINI[:3], concurrency=2))
    by_id = {row.id: row for row in rows}
    broken = by_id[MINI[1].id]
    assert (broken.status, broken.prediction, broken.correct, broken.broken) == ("failed", None, False, True)
    assert broken.error == "RuntimeError: no luck"
    assert [by_id[MINI[n].id].status for n in (0, 2)] == ["finished", "finished"]
    summary = summarise("mini", "s", rows)
    assert (summary["failed"], summary["n"], summary["status"]) == (1, 3, {"failed": 1, "finished": 2})


TOOLS = ("Search", "Retrieve", "Lookup")


def test_tool_failures_are_added_up_and_end_an_episode_that_counts_as_broken() -> None:
    failing = FakeTool("fake", {str(n): ToolFailed("auth", "no key") for n in range(9)})

    def write(adapter: str, field: Any, so_far: str) -> str:
        return {"thought": "So.", "action": "Search", "argument": str(so_far.count("Search["))}[field]

    tools = {name: failing if name == "Search" else FakeTool(name) for name in TOOLS}
    team = short_team(may_search(*map(str, range(9))), max_tool_errors=1, max_steps=8)
    runtime = Runtime(team, engine=ScriptedEngine(write), tools=tools)
    summary = summarise("mini", "s", rows_of(runtime, EvalPlan("mini", MINI[:2])))
    assert summary["status"] == {"limit:tool_errors": 2}
    assert summary["failed"] == 2
    assert summary["tool_health"]["failures"] == {"auth": 4}


def test_an_engine_that_is_gone_ends_the_evaluation() -> None:
    engine = ScriptedEngine([])
    engine.close()
    runtime = Runtime(short_team(), engine=engine, tools={name: FakeTool(name) for name in TOOLS})
    with pytest.raises(EngineClosedError):
        rows_of(runtime, EvalPlan("mini", MINI[:2]))


def test_rows_survive_json_and_score_again_alone() -> None:
    science = load_questions("mini-science")[0]
    for question, right in ((MINI[0], MINI[0].answer), (science, science.letter), (science, science.answer)):
        scored = EpisodeRow.model_validate_json(row(question, right).model_dump_json())
        assert (scored.correct, scored.f1) == (True, 1.0)
        doctored = scored.model_copy(update={"correct": False, "f1": 0.0})
        assert doctored.rescore() == scored
    assert not row(MINI[0], MINI[0].answer, "limit:steps").correct
    assert not row(MINI[0], "").correct


def test_text_is_scored_by_level_and_choices_by_grade_band() -> None:
    levels = [question for level in ("hard", "easy") for question in [q for q in MINI if q.group == level][:2]]
    said = [levels[0].answer, "nonsense", levels[2].answer, levels[3].answer]
    summary = summarise("mini", "s", [row(question, text) for question, text in zip(levels, said, strict=True)])
    assert summary["event"] == "eval_finished"
    assert set(summary) >= {"benchmark", "scheme", "n", "metrics", "by_group", "ci95", "tool_health"}
    assert list(summary["by_group"].items()) == [
        ("easy", {"n": 2, "em": 1.0, "f1": 1.0}),
        ("hard", {"n": 2, "em": 0.5, "f1": 0.5}),
    ]
    assert summary["metrics"] == {"em": 0.75, "f1": 0.75}
    low, high = summary["ci95"]["em"]
    assert 0.0 <= low < 0.75 < high <= 1.0
    assert summary["baseline"] == {"answer": min(q.answer for q in levels), "em": 0.25, "f1": 0.25}

    science = load_questions("mini-science")
    summary = summarise("mini-science", "s", [row(question, "A") for question in science])
    assert list(summary["by_group"]) == ["1-4", "5-8", "9-12"]
    share = sum(question.letter == "A" for question in science) / len(science)
    assert summary["metrics"]["accuracy"] == pytest.approx(share, abs=1e-6)
    assert summary["baseline"]["accuracy"] >= summary["metrics"]["accuracy"]


def test_repeats_of_a_question_are_one_value_of_the_interval() -> None:
    rows = [
        row(question, question.answer if repeat == 0 else "x", repeat=repeat)
        for question in MINI[:4]
        for repeat in (0, 1)
    ]
    summary = summarise("mini", "s", rows)
    assert (summary["n"], summary["questions"], summary["metrics"]["em"]) == (8, 4, 0.5)
    assert summary["ci95"]["em"] == [0.5, 0.5]


def test_repeats_spread_over_whole_repeats_only() -> None:
    rows = [
        row(question, question.answer if repeat <= index else "x", repeat=repeat)
        for index, question in enumerate(MINI[:4])
        for repeat in (0, 1, 2)
    ]
    assert summarise("mini", "s", rows)["std_over_repeats"]["em"] == pytest.approx(0.25)  # of 1, 0.75 and 0.5
    without_last = [each for each in rows if each.key != Key(MINI[0].id, 2)]
    assert summarise("mini", "s", without_last)["std_over_repeats"]["em"] == pytest.approx(0.176777)
    assert summarise("mini", "s", [each for each in rows if each.repeat == 0])["std_over_repeats"] is None


def test_the_baseline_for_text_is_the_most_frequent_answer() -> None:
    asked = [replace(MINI[n], answer=text) for n, text in enumerate(["yes", "Rome", "yes", "Rome", "yes", "a Roma"])]
    summary = summarise("mini", "s", [row(question, "no", repeat=repeat) for question in asked for repeat in (0, 1)])
    assert summary["baseline"] == {"answer": "yes", "em": 0.5, "f1": 0.5}


def test_episodes_that_hit_a_limit_are_counted_once() -> None:
    ends = ("finished", "limit:steps", "forced", "loop", "failed", "malformed", "limit:time", "finished")
    summary = summarise("mini", "s", [row(MINI[n], "x", end) for n, end in enumerate(ends)])
    assert summary["limit_share"] == 0.5


def test_costs_are_summed_over_an_episodes_calls_and_averaged_over_episodes() -> None:
    short = costly(row(MINI[0], "x"), tokens=100, steps=2, ttft_s=0.25, turns=2, turns_s=2.0)
    long = costly(row(MINI[1], "x"), tokens=300, steps=6, ttft_s=0.5, turns=6, turns_s=9.0)
    broken = row(MINI[2], None, "failed")
    assert summarise("mini", "s", [short, long, broken])["per_episode"] == {
        "episodes": 2,
        "ttft_s": (2 * 2 * 0.25 + 2 * 6 * 0.5) / 2,
        "model_latency_s": 5.5,
        "end_to_end_s": 6.5,
        "trajectory_tokens": {"mean": 200.0, "max": 300},
        "generated_tokens": 20.0,
        "steps": 4.0,
    }
    assert summarise("mini", "s", [broken])["per_episode"] is None


def test_the_bootstrap_interval_is_that_of_the_mean() -> None:
    values = [float(n % 2) for n in range(400)]
    found = bootstrap_mean(values)
    assert found is not None
    assert found == bootstrap_mean(values)
    assert found.low == pytest.approx(0.5 - 1.96 * 0.5 / 20, abs=0.005)
    assert found.high == pytest.approx(0.5 + 1.96 * 0.5 / 20, abs=0.005)
    assert bootstrap_mean([1.0]) is None


def test_a_folder_goes_on_where_it_was_killed(open_runtime: OpenRuntime, tmp_path: Path) -> None:
    runtime = open_runtime()
    plan = EvalPlan("mini", MINI[:4])
    identity = plan.identity(runtime.team, "pre_lr_shared", {})
    whole = rows_of(runtime, plan)
    with closing(EvalFolder.create(tmp_path / "one", identity)) as folder:
        for found in whole[:2]:
            folder.add(found)
        with pytest.raises(RunBusyError, match="somebody else"):
            EvalFolder.resume(tmp_path / "one", identity)
    with (tmp_path / "one" / ROWS).open("a") as file:
        file.write(whole[2].model_dump_json()[:40])  # the line that was being written

    resumed = EvalFolder.resume(tmp_path / "one", identity)
    assert [found.key for found in resumed.rows] == [found.key for found in whole[:2]]
    run_episodes(runtime, plan, resumed.add, done={found.key for found in resumed.rows})
    stored = read_rows(tmp_path / "one")
    assert [same_part(found) for found in stored] == [same_part(found) for found in whole]
    resumed.finish({"n": 4})
    resumed.close()
    assert json.loads((tmp_path / "one" / "summary.json").read_text()) == {"n": 4}


def test_rows_of_another_evaluation_are_not_mixed_in(tmp_path: Path) -> None:
    team = short_team()
    identity = EvalPlan("mini", MINI[:4]).identity(team, "pre_lr_shared", {})
    EvalFolder.create(tmp_path / "one", identity).close()
    other_corpus, played = Resources(corpus_sha256="00"), Resources(cassette="/somewhere/tape")
    for other in (
        EvalPlan("mini", MINI[:3]).identity(team, "pre_lr_shared", {}),
        EvalPlan("mini", MINI[:4], seed=1).identity(team, "pre_lr_shared", {}),
        EvalPlan("mini", MINI[:4]).identity(team, "full_shared", {}),
        EvalPlan("mini", MINI[:4]).identity(short_team(max_steps=4), "pre_lr_shared", {}),
        EvalPlan("mini", MINI[:4]).identity(team, "pre_lr_shared", {"adapters": {"plan": {"hash": "00"}}}),
        EvalPlan("mini", MINI[:4]).identity(team, "pre_lr_shared", {"options": {"layers": (1, 2)}}),
        EvalPlan("mini", MINI[:4]).identity(team, "pre_lr_shared", {"maps_sha256": "00"}),
        EvalPlan("mini", MINI[:4]).identity(team, "pre_lr_shared", {}, other_corpus),
        EvalPlan("mini", MINI[:4]).identity(team, "pre_lr_shared", {}, played),
    ):
        with pytest.raises(UsageError, match=r"--resume one: its .* is .*, now it is"):
            EvalFolder.resume(tmp_path / "one", other)
    at_once = EvalPlan("mini", MINI[:4], concurrency=9)
    EvalFolder.resume(tmp_path / "one", at_once.identity(team, "pre_lr_shared", {})).close()
    options = at_once.identity(team, "droidspeak", {"options": {"layers": (1, 2)}})
    EvalFolder.create(tmp_path / "three", options).close()
    EvalFolder.resume(tmp_path / "three", options).close()
    with pytest.raises(UsageError, match="is no evaluation"):
        EvalFolder.resume(tmp_path / "two", identity)
    (tmp_path / "one" / ROWS).write_text('{"id": 3}\n')
    with pytest.raises(DataError, match=r"episodes\.jsonl:1: not a row"):
        read_rows(tmp_path / "one")


def test_what_broke_is_played_again_and_nothing_is_there_twice(tmp_path: Path) -> None:
    broken = row(MINI[1], None).model_copy(update={"status": "failed", "correct": False})
    with closing(EvalFolder.create(tmp_path / "one", {})) as folder:
        for each in (row(MINI[0], "x"), broken, row(MINI[2], "x")):
            folder.add(each)
    with closing(EvalFolder.resume(tmp_path / "one", {})) as resumed:
        assert [each.id for each in resumed.rows] == [MINI[0].id, MINI[2].id]
        resumed.add(row(MINI[1], "y"))
    assert [each.id for each in read_rows(tmp_path / "one")] == [MINI[0].id, MINI[2].id, MINI[1].id]
    resumed.add(row(MINI[1], "z"))
    with pytest.raises(DataError, match=r"episodes\.jsonl:4: question .* for the second time"):
        read_rows(tmp_path / "one")


@pytest.mark.parametrize("option", [{"repeats": 0}, {"concurrency": 0}, {"max_failed": 1.5}])
def test_a_plan_that_makes_no_sense_is_refused(option: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="--"):
        EvalPlan("mini", MINI[:1], **option)
    with pytest.raises(UsageError, match="--limit 0"):
        pick(MINI, 0)
