"""The soak in a few seconds: a mixed load on a tiny model leaves nothing behind, and every token is the right one."""

import re
from pathlib import Path

import pytest

from agentrt import Runtime, Team
from agentrt.config.team import Override
from agentrt.runtime.events import Token
from benchmarks.soak.load import Played, Turned
from benchmarks.soak.replays import NEAR_TIE, Comparison, replay_episode, replay_session
from benchmarks.soak.run import soak
from benchmarks.soak.tool import HangingTool, patient
from tests.crew import short_team, tiny_engine

QUESTIONS = ("Where was she born?", "Which came first?", "Who wrote it?", "What is the capital?")


def soak_team() -> Team:
    """The short team; a random model's arguments are words of the question, so its tool calls are well formed."""
    words = {"span_of": "question"}
    changes = [
        Override(("flow", "nodes", "argue", "constrain", name), words, "the test") for name in ("Search", "Lookup")
    ]
    return short_team(*changes, *patient(short_team()))


@pytest.mark.parametrize(
    ("scheme", "seconds"),
    [
        ("rebase_shared:auto", 6.0),
        pytest.param("pre_lr_shared", 6.0, marks=pytest.mark.slow),
        pytest.param("rebase_shared:auto", 60.0, marks=pytest.mark.slow),
    ],
)
def test_a_mixed_load_leaves_nothing_behind_and_no_wrong_token(tmp_path: Path, scheme: str, seconds: float) -> None:
    team = soak_team()
    tools = {name: HangingTool(name, every=2, hang_s=0.8) for name in team.tools}
    with (
        tiny_engine(tmp_path, scheme) as engine,
        Runtime(team, engine=engine, tools=tools) as runtime,
    ):
        report = soak(runtime, QUESTIONS, seconds=seconds, workers=4, replays=24)
    assert report.faults == []
    assert report.episodes > 8
    assert report.cancelled > 0
    assert report.timeouts > 0
    assert report.sessions > 0
    assert report.compared.replayed > 8
    assert report.compared.tokens > 100


def test_the_soak_notices_a_wrong_token_and_a_session_left_open(tmp_path: Path) -> None:
    team = soak_team()
    tools = {name: HangingTool(name, every=10_000) for name in team.tools}
    with tiny_engine(tmp_path, "pre_lr_shared") as engine, Runtime(team, engine=engine, tools=tools) as runtime:
        left = engine.session(preamble=[1, 2, 3])
        report = soak(runtime, QUESTIONS, seconds=0.5, workers=1, replays=0, settle_s=0.2)
        assert any("the engine still holds" in fault for fault in report.faults)
        left.close()


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
            assert comparison.replayed == 1 - faults
        assert re.search(r"with seed 1 differs .*; the two tokens are [\d.e-]+ apart", comparison.faults[0])
        session = Comparison()
        replay_session(engine, [Turned("plan", (5, 6), tuple(wrong[:5]))], session)
        assert len(session.faults) == 1


def test_what_is_as_good_as_equal_is_counted_and_no_fault() -> None:
    comparison = Comparison()
    comparison.differ("a turn", NEAR_TIE / 2)
    assert (comparison.near_ties, comparison.faults) == (1, [])
