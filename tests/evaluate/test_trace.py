"""Traces: the shipped presets are the papers', a broken file is refused by name, and the formulas count right."""

from pathlib import Path
from typing import Any

import pytest
import torch

from agentrt.cache.layout import Layout
from agentrt.config.trace import TraceConfig
from agentrt.errors import ConfigError, UsageError
from agentrt.evaluate.replay.entrants import all_schemes, core_schemes, parse_schemes
from agentrt.evaluate.replay.formulas import expected
from agentrt.evaluate.replay.trace import Trace, build_trace, random_contexts
from agentrt.schemes import SCHEMES
from agentrt.schemes.make import make_scheme

AGENTS = ("plan", "action", "reflect")

SMOLLM2 = Layout(
    num_layers=30,
    num_kv_heads=3,
    head_dim=64,
    dtype=torch.bfloat16,
    lr_dtype=torch.bfloat16,
    ranks=dict.fromkeys(AGENTS, 8),
)


def react(context: int) -> Trace:
    config = TraceConfig.load("react")
    return build_trace(config, "react", context, config.agents)


def agents(count: int, context: int = 64) -> Trace:
    return build_trace(TraceConfig.load("agents"), "agents", context, [f"agent{i}" for i in range(count)])


@pytest.mark.parametrize(
    ("context", "tokens"), [(256, 1_936), (512, 2_960), (1_024, 5_008), (4_096, 17_296), (16_384, 66_448)]
)
def test_react_has_the_papers_lengths(context: int, tokens: int) -> None:
    trace = react(context)
    assert trace.num_tokens == tokens
    assert len(trace.calls) == 17
    assert sum(call.decode for call in trace.calls) == 280


def test_react_calls_a_tool_before_each_of_the_four_observations() -> None:
    calls = react(99).calls
    assert [index + 1 for index, call in enumerate(calls) if call.context == 99] == [4, 7, 10, 13]
    assert [index + 2 for index, call in enumerate(calls) if call.tool] == [4, 7, 10, 13]
    assert all(call.agent == "action" for call in calls if call.tool)


@pytest.mark.parametrize(
    ("scheme", "short", "long"),
    [
        ("non_shared", (5_352, 0), (14_568, 0)),
        ("base_shared", (5_352, 0), (14_568, 0)),
        ("full_shared", (1_656, 0), (4_728, 0)),
        ("pre_lr_shared", (1_656, 0), (4_728, 0)),
        ("base_lr_shared", (1_656, 0), (4_728, 0)),
        ("rebase_shared:lp", (1_656, 1_936), (4_728, 5_008)),
        ("rebase_shared:db", (1_656, 1_936), (4_728, 5_008)),
        ("rebase_shared:auto,adapted_tail=16", (184, 1_936), (184, 5_008)),
        ("rebase_shared:auto,pivot=plan", (1_656, 160), (4_728, 160)),
    ],
)
def test_the_formulas_give_the_rows_of_the_design(scheme: str, short: tuple[int, int], long: tuple[int, int]) -> None:
    for context, rows in ((256, short), (1_024, long)):
        books = expected(make_scheme(scheme), react(context), SMOLLM2)
        assert books is not None
        assert (books.prefill_rows, books.neutral_rows, books.decode_rows) == (*rows, 280)


def test_bytes_follow_from_23040_a_token_and_1440_of_columns() -> None:
    def peak(scheme: str) -> int:
        books = expected(make_scheme(scheme), react(256), SMOLLM2, riding=True)
        assert books is not None
        return books.kv_bytes_peak

    assert peak("full_shared") == 1_936 * 23_040
    assert peak("pre_lr_shared") == 1_936 * (23_040 + 1_440)
    assert peak("base_lr_shared") == 1_936 * (23_040 + 480)
    assert peak("non_shared") == (1_840 + 1_856 + 1_936) * 23_040
    assert peak("base_shared") == 1_936 * 23_040 + (1_840 + 1_856 + 1_936) * 480
    # the last call holds least privately (reflect 8/8), the call before holds most of what counts (reflect 32/32)
    assert peak("rebase_shared:db") == max(1_920 * 24_480 + 64 * 23_040, 1_824 * 24_480 + 288 * 23_040)
    assert peak("rebase_shared:auto") == peak("rebase_shared:db")
    assert peak("rebase_shared:lp") == peak("pre_lr_shared"), "the base path takes the private rows' place"


def test_more_agents_cost_non_shared_more_rows_and_the_others_none() -> None:
    four, eight = agents(4), agents(8)
    assert [call.agent for call in four.calls[:5]] == ["agent0", "agent1", "agent2", "agent3", "agent0"]
    assert four.num_tokens == eight.num_tokens == 8 * 72
    for name, grows in (("non_shared", True), ("pre_lr_shared", False), ("rebase_shared:lp", False)):
        rows = [books.prefill_rows for each in (four, eight) if (books := expected(make_scheme(name), each, SMOLLM2))]
        assert (rows[1] > rows[0]) is grows


def test_contexts_are_as_long_as_asked_and_repeatable() -> None:
    trace = react(5)
    contexts = random_contexts(trace, 100, seed=1)
    assert [len(ids) for ids in contexts] == [call.context for call in trace.calls]
    assert contexts == random_contexts(trace, 100, seed=1) != random_contexts(trace, 100, seed=2)


def test_every_shipped_trace_loads() -> None:
    assert TraceConfig.load("rank").ranks == (8, 16, 32, 64)
    assert TraceConfig.load("rank").calls == TraceConfig.load("react").calls
    assert TraceConfig.load("agents").crews == (4, 8)


def test_an_unknown_trace_names_the_known_ones() -> None:
    with pytest.raises(UsageError, match="did you mean 'react'"):
        TraceConfig.load("raect")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("agent: plan", "agent: pln"), "agent 'pln' of a call does not act in this trace: did you mean 'plan'"),
        (("context: 4", "context: D"), "'D' is not allowed"),
        (("decode: 2", "decode: 0"), "must be above 0"),
        (("agents: [plan]", "agents: []"), "say who acts"),
        (("agents: [plan]", "agents: [plan]\ntargets: qv"), "say for which ranks or crews"),
        (("agents: [plan]", "agents: [plan]\nranks: [4]\ntargets: qx"), "targets"),
        (("repeat: 2", "repat: 2"), "unknown key 'repat'"),
        (("calls:\n", "calls_from: react\ncalls:\n"), "leave out agents, crews, calls"),
    ],
)
def test_a_broken_trace_is_refused_with_its_place(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    good = (
        "version: 1\nabout: a test\nagents: [plan]\ncontexts: [4]\ncalls:\n"
        "  - {agent: plan, context: 4, decode: 2}\n"
        "  - repeat: 2\n    calls: [{agent: next, context: C, decode: 1}]\n"
    )
    file = tmp_path / "mine.yaml"
    file.write_text(good)
    assert len(TraceConfig.load(file).flat_calls()) == 3
    file.write_text(good.replace(*change))
    with pytest.raises(ConfigError) as caught:
        TraceConfig.load(file)
    assert message in str(caught.value)
    assert f"{file}:" in str(caught.value)


def test_scheme_lists_keep_options_with_their_scheme() -> None:
    calls = react(4).calls
    text = "full_shared, rebase_shared:auto,adapted_tail=16,pivot=plan,rebase_shared:pivot=plan,non_shared,full_shared"
    assert parse_schemes(text, calls) == [
        "full_shared",
        "rebase_shared:auto,adapted_tail=16,pivot=plan",
        "rebase_shared:pivot=plan",
        "non_shared",
    ]
    assert parse_schemes("core", calls) == core_schemes(calls)
    assert core_schemes(calls)[-1] == "rebase_shared:auto,pivot=plan"
    assert {make_scheme(name).name for name in all_schemes(calls)} == set(SCHEMES)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (",", "at least one scheme"),
        ("ful_shared", "did you mean 'full_shared'"),
        ("rebase_shared:lazy", "unknown schedule 'lazy'"),
        ("rebase_shared:auto,tail=3", "no option 'tail'"),
        ("rebase_shared:auto,adapted_tail=0", "adapted_tail"),
    ],
)
def test_a_scheme_that_does_not_exist_is_refused_by_name(text: str, message: str) -> None:
    calls: Any = react(4).calls
    with pytest.raises(UsageError, match=message):
        parse_schemes(text, calls)
