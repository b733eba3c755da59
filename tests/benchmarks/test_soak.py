"""The soak in a few seconds: a mixed load on a tiny model leaves nothing behind, and every token is the right one."""

import json
import re
from pathlib import Path

import pytest

from agentrt import EngineConfig, Runtime, Sampling
from agentrt.runtime.events import Token
from benchmarks.soak.records import NEEDED, Cropped, Played, Sample, Turned
from benchmarks.soak.replays import NEAR_TIE, Comparison, replay_episode, replay_session
from benchmarks.soak.report import Report, Round, SoakPlan
from benchmarks.soak.tool import HangingTool
from benchmarks.soak.usage import Usage
from tests.benchmarks.soaks import LIMITS, QUESTIONS, soak_team, soaked
from tests.crew import tiny_engine

FEW = SoakPlan(seconds=2.0, round_s=1.0, warm_up_s=1.0, workers=4, replays=12)
MINUTE = SoakPlan(seconds=45.0, round_s=5.0, warm_up_s=15.0, workers=4, replays=48)


@pytest.mark.parametrize(
    ("scheme", "plan"),
    [
        ("rebase_shared:auto", FEW),
        pytest.param("pre_lr_shared", FEW, marks=pytest.mark.slow),
        pytest.param("cacheblend", FEW, marks=pytest.mark.slow),
        pytest.param("rebase_shared:auto", MINUTE, marks=pytest.mark.slow),
    ],
)
def test_a_mixed_load_leaves_nothing_behind_and_no_wrong_token(tmp_path: Path, scheme: str, plan: SoakPlan) -> None:
    saved: list[str] = []
    with soaked(tmp_path, plan, scheme=scheme, save=lambda report: saved.append(report.verdict)) as report:
        assert report.faults == []
    assert report.verdict == "passed"
    assert all(report.counts[each] for each in NEEDED)
    assert report.counts["episodes"] > 8
    assert report.compared.same > 12
    assert report.compared.tokens > 100
    assert len(report.rounds) >= plan.num_rounds
    assert saved == ["running"] * (len(report.rounds) + plan.workers) + ["passed"]


def test_a_report_is_a_file_whose_verdict_is_open_until_the_end(tmp_path: Path) -> None:
    report, file = Report(SoakPlan(), warm=Round(9.0, 3, Usage(5, 6, 7))), tmp_path / "soak.json"
    report.counts.update(dict.fromkeys(NEEDED, 1))
    told = []
    for change in (lambda: None, lambda: setattr(report, "ended", True), lambda: report.faults.append("a leak")):
        change()
        report.write(file)
        told.append(json.loads(file.read_text("utf-8")))
    assert [each["verdict"] for each in told] == ["running", "passed", "failed"]
    assert told[-1]["faults"] == ["a leak"]
    assert told[-1]["plan"]["memory_slack_bytes"] == SoakPlan().memory_slack_bytes
    assert (told[-1]["counts"]["forks"], told[-1]["warm"]["usage"]["threads"]) == (1, 5)
    assert [each.name for each in tmp_path.iterdir()] == ["soak.json"]


def test_growth_is_counted_from_the_warm_up_on_and_a_load_that_did_too_little_is_a_fault() -> None:
    def after(mib: float) -> Round:
        return Round(1.0, 1, Usage(1, 1, int(mib * 2**20)))

    slack = SoakPlan().memory_slack_bytes / 2**20
    for grown, faults in ((slack, 0), (slack + 1, 1)):
        report = Report(SoakPlan(), warm=after(100), rounds=[after(300), after(100 + grown)])
        report.counts.update(dict.fromkeys(NEEDED, 1))
        report.conclude()
        assert len(report.faults) == faults
    assert re.fullmatch(r"memory has grown by 17\.0 MiB; in MiB: 100, 300, 117", report.faults[0])
    report = Report(SoakPlan())
    report.counts.update(dict.fromkeys(NEEDED, 1), forks=0, crops=0)
    report.conclude()
    assert report.faults == ["the load never met: forks, crops"]


def test_a_wrong_token_is_a_fault_that_says_how_far_it_was_from_the_right_one(tmp_path: Path) -> None:
    team = soak_team()
    tools = {name: HangingTool(name, every=10_000) for name in team.tools}
    with tiny_engine(tmp_path, "pre_lr_shared") as engine, Runtime(team, engine=engine, tools=tools) as runtime:
        tokens = [event.token_id for event in runtime.stream(QUESTIONS[0], seed=1) if isinstance(event, Token)]
        wrong = [*tokens[:4], tokens[4] ^ 1, *tokens[5:]]
        for said, faults in ((tokens, 0), (tokens[:3], 0), (wrong, 1), (wrong[:5], 1)):
            comparison = Comparison()
            whole = len(said) == len(tokens)
            replay_episode(runtime, Played(QUESTIONS[0], 1, tuple(said), whole, ()), comparison)
            assert len(comparison.faults) == faults
            assert comparison.same == 1 - faults
        assert re.search(r"with seed 1 differs .*; the two tokens are [\d.e-]+ apart", comparison.faults[0])
        session = Comparison()
        replay_session(engine, (Turned("plan", (5, 6), tuple(wrong[:5])),), session)
        assert len(session.faults) == 1


def test_a_cropped_session_is_replayed_with_its_crops(tmp_path: Path) -> None:
    with tiny_engine(tmp_path, "pre_lr_shared", config=EngineConfig(**LIMITS)) as engine:
        with engine.session() as session:
            first = session.turn("plan", (5, 6, 7), Sampling(max_new_tokens=9)).result.token_ids
            session.crop(4)
            second = session.turn("action", (9,), Sampling(max_new_tokens=9)).result.token_ids
        history = (Turned("plan", (5, 6, 7), first), Cropped(4), Turned("action", (9,), second))
        right, wrong = Comparison(), Comparison()
        replay_session(engine, history, right)
        replay_session(engine, (history[0], history[2]), wrong)
    assert (right.same, right.tokens, right.faults) == (2, len(first) + len(second), [])
    assert len(wrong.faults) == 1


def test_what_is_as_good_as_equal_is_counted_and_a_fault_only_where_it_is_often() -> None:
    comparison = Comparison()
    comparison.differ("a turn", NEAR_TIE / 2)
    assert (comparison.near_ties, comparison.faults, comparison.too_many()) == (1, [], [])
    comparison.differ("a turn", NEAR_TIE / 2)
    assert comparison.too_many() == ["2 of 2 replays are near ties, more than 1%"]
    for _ in range(198):
        comparison.agree(5)
    assert comparison.too_many() == []
    comparison.skipped = 11
    assert comparison.too_many() == ["11 of 211 replays are skipped, more than 5%"]


def test_a_sample_stays_as_small_as_it_is_said_to_be_and_favours_nothing() -> None:
    sample: Sample[int] = Sample(50, seed=1)
    for number in range(40):
        sample.offer(number)
    assert sample.kept == list(range(40))
    for number in range(40, 5000):
        sample.offer(number)
    assert len(sample.kept) == 50
    assert 1900 < sum(sample.kept) / 50 < 3100
