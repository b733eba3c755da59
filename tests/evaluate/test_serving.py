"""Load tests: arrivals that wait for nothing, calls timed from when they were due, and the same tokens as alone."""

import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from agentrt.config.trace import TraceConfig
from agentrt.engine import Engine, EngineConfig
from agentrt.errors import UsageError
from agentrt.evaluate.replay.adapters import RandomAdapters
from agentrt.evaluate.replay.contestant import EngineContestant, play
from agentrt.evaluate.replay.entrants import LeftOut
from agentrt.evaluate.replay.plan import ReplayPlan
from agentrt.evaluate.replay.trace import Trace, build_trace, random_contexts
from agentrt.evaluate.serving.arrivals import Arrivals, arrival_times
from agentrt.evaluate.serving.job import Failed, Found, run_serve_bench
from agentrt.evaluate.serving.load import Served, ServedCall, serve
from agentrt.evaluate.serving.plan import ServePlan
from agentrt.evaluate.serving.plots import draw
from agentrt.evaluate.serving.result import Percentiles, point_of, to_record
from agentrt.model.backbone import Backbone
from agentrt.model.tiny import tiny_adapter, tiny_model
from agentrt.schemes.make import make_scheme

SHORT = """
version: 1
about: a few calls
agents: [plan, action]
contexts: [9]
calls:
  - {agent: plan, context: 12, decode: 3}
  - {agent: action, context: C, decode: 2, tool: true}
  - {agent: plan, context: C, decode: 4}
"""


@pytest.fixture
def config(tmp_path: Path) -> TraceConfig:
    (tmp_path / "short.yaml").write_text(SHORT)
    return TraceConfig.load(tmp_path / "short.yaml")


@pytest.fixture
def trace(config: TraceConfig) -> Trace:
    return build_trace(config, "short", 9, ("plan", "action"))


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    model = tiny_model()
    folders = {name: tiny_adapter(model, tmp_path / name, seed=seed) for seed, name in enumerate(("plan", "action"))}
    backbone = Backbone(model)
    scheme = make_scheme("rebase_shared:auto")
    with Engine(backbone, backbone.load_adapters(folders), scheme, config=EngineConfig(ride_rows=4)) as engine:
        yield engine


def test_trajectories_arrive_at_random_at_the_rate_and_their_calls_follow_each_other() -> None:
    times = arrival_times("trajectories", 2.0, 4000, 3, seed=1)
    assert times[0] == (0.0, None, None)
    starts = [first for first, *_ in times]
    gaps = [after - before for before, after in pairwise(starts)]
    assert sum(gaps) / len(gaps) == pytest.approx(0.5, rel=0.05)
    assert sum(gap > 0.5 for gap in gaps) / len(gaps) == pytest.approx(0.3679, abs=0.03), "exponential, so bursty"
    assert times == arrival_times("trajectories", 2.0, 4000, 3, seed=1)
    assert times != arrival_times("trajectories", 2.0, 4000, 3, seed=2)


def test_calls_arrive_evenly_whether_or_not_the_call_before_has_ended() -> None:
    assert arrival_times("calls", 4.0, 2, 3, seed=0) == [(0.0, 0.25, 0.5), (0.75, 1.0, 1.25)]
    assert arrival_times("calls", None, 2, 3, seed=0) == [(0.0, None, None)] * 2


def test_a_call_is_timed_from_when_it_was_due(engine: Engine, trace: Trace) -> None:
    contexts = [random_contexts(trace, 211, 0)]
    late = serve(engine, trace, contexts, [(0.0, 0.0, 0.0)])
    first, second, third = late.calls
    assert [call.arrived for call in late.calls] == [0.0, 0.0, 0.0]
    assert 0 < first.first_token < first.ended <= second.first_token < second.ended <= third.first_token
    assert third.ttft_s > second.latency_s, "its wait for the two before counts"
    follows = serve(engine, trace, contexts, [(0.0, None, None)], tool_wait_s=0.05)
    assert follows.calls[1].arrived >= follows.calls[0].ended
    assert follows.calls[2].arrived >= follows.calls[1].ended + 0.05
    assert engine.stats().sessions == 0
    assert follows.kv_bytes_peak > 0


def test_a_load_never_sleeps_past_an_arrival_and_late_starts_count_as_waiting(engine: Engine, trace: Trace) -> None:
    slept: list[float] = []

    def oversleep(seconds: float) -> None:
        slept.append(seconds)
        time.sleep(seconds + 0.05)

    contexts = [random_contexts(trace, 211, seed) for seed in (0, 1)]
    served = serve(engine, trace, contexts, [(0.0, None, None), (0.02, None, None)], sleep=oversleep)
    starts = [call for call in served.calls if call.arrived in (0.0, 0.02)]
    assert len(starts) == 2
    assert all(call.ttft_s > 0.05 for call in starts)
    assert max(slept) <= 0.02


@pytest.mark.parametrize("arrivals", ["trajectories", "calls"])
def test_every_trajectory_gets_the_tokens_it_gets_alone(
    tmp_path: Path, config: TraceConfig, trace: Trace, arrivals: Arrivals
) -> None:
    backbone = Backbone(tiny_model())
    folders = RandomAdapters(r=2).write(trace.agents, backbone.shapes, tmp_path, base_name=backbone.names[0])
    adapters = backbone.load_adapters(folders)
    contestant = EngineContestant("s", make_scheme("pre_lr_shared"), backbone, adapters, max_tokens=trace.num_tokens)
    contexts = [random_contexts(trace, backbone.vocab_size, seed) for seed in range(4)]
    alone = []
    for each in contexts:
        play(contestant, trace, each)
        alone.append(contestant.token_ids)
    served = serve(contestant.engine, trace, contexts, arrival_times(arrivals, 300.0, 4, 3, 0))
    contestant.close()
    assert served.token_ids == alone


def plan_of(config: TraceConfig, **values: object) -> ServePlan:
    replay = ReplayPlan(config, "short", schemes="non_shared,rebase_shared:lp", random=RandomAdapters(r=2), ride_rows=4)
    return ServePlan(replay, 9, **{"trajectories": 3, "loads": (0.5, 1.5), **values})  # type: ignore[arg-type]


def test_a_bench_measures_saturation_then_every_rate_for_every_scheme(config: TraceConfig, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    found = list(run_serve_bench(Backbone(tiny_model()), plan_of(config)))
    assert not [each for each in found if isinstance(each, LeftOut | Failed)]
    points = [each.point for group in found for each in group if isinstance(each, Found)]  # type: ignore[union-attr]
    assert [point.scheme for point in points] == ["non_shared", "rebase_shared:lp"] * 3
    burst, rated = points[:2], points[2:]
    best = max(point.completed_per_s for point in burst)
    assert [point.rate_per_s for point in rated] == pytest.approx([0.5 * best] * 2 + [1.5 * best] * 2)
    for point in rated:
        assert point.calls == 9
        assert 0 < point.ttft_s.p50 <= point.ttft_s.p90 <= point.ttft_s.p99
        assert point.load is not None
    files = draw(points, tmp_path / "figures")
    assert [file.name for file in files][:2] == ["ttft_p50.svg", "ttft_p90.svg"]
    first = found[0]
    assert isinstance(first, list)
    record = to_record(first[0].point, first[0].trace, first[0].declared)
    assert record["event"] == "saturation"
    assert record["declared"]["adapter_source"] == "random r=2,targets=qv,alpha=16"


def test_figures_of_a_point_follow_from_its_calls(trace: Trace) -> None:
    calls = [ServedCall(n // 3, float(n), n + (n + 1) / 10, n + 2.0) for n in range(9)]
    point = point_of("s", "trajectories", 0.5, 2.0, trace, Served(calls, 7, []))
    assert point.ttft_s == Percentiles(0.5, 0.82, 0.892)
    assert point.latency_s.p99 == 2.0
    assert (point.makespan_s, point.trajectories, point.calls, point.load) == (10.0, 3, 9, 0.25)
    assert point.completed_per_s == 0.3
    assert point.throughput_tok_s == 3 * trace.num_tokens / 10
    assert point_of("s", "calls", 0.5, 2.0, trace, Served(calls, 7, [])).completed_per_s == 0.9


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"arrivals": "turns"}, "trajectories or calls"),
        ({"rates": (0.0,)}, "--rates 0.0: above 0"),
        ({"trajectories": 0}, "at least 1"),
        ({"loads": ()}, "at least one"),
    ],
)
def test_a_plan_that_makes_no_sense_is_refused(config: TraceConfig, values: dict[str, object], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        plan_of(config, **values)


def test_a_trace_of_several_crews_is_refused() -> None:
    plan = ServePlan(ReplayPlan(TraceConfig.load("agents"), "agents"), 16)
    with pytest.raises(UsageError, match=r"has 2 variants \(N=4, N=8\)"):
        plan.variant  # noqa: B018
