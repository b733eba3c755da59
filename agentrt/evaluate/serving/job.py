"""A whole load test: adapters and checks as in a replay, saturation of every scheme, then every rate in turn."""

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from agentrt.evaluate.replay.check import Check
from agentrt.evaluate.replay.contestant import EngineContestant, play
from agentrt.evaluate.replay.declare import declare, describe_machine
from agentrt.evaluate.replay.entrants import LeftOut
from agentrt.evaluate.replay.job import Entrant, check_entrants, choose_ride_rows, find_entrants
from agentrt.evaluate.replay.trace import Trace, build_trace, random_contexts
from agentrt.evaluate.serving.arrivals import arrival_times
from agentrt.evaluate.serving.load import serve
from agentrt.evaluate.serving.plan import ServePlan
from agentrt.evaluate.serving.result import Point, point_of
from agentrt.model.backbone import Backbone
from agentrt.model.progress import Report, silent


class Found(NamedTuple):
    point: Point
    trace: Trace
    declared: Mapping[str, Any]


@dataclass(frozen=True)
class Failed:
    """A scheme that does not compute what it should: its times would mean nothing."""

    label: str
    check: Check


def run_serve_bench(
    backbone: Backbone, plan: ServePlan, report: Report = silent
) -> Iterator[list[Found] | LeftOut | Failed]:
    """Yield who does not take part; then the saturation of all schemes; then, for each rate, all schemes.

    Saturation is measured by a burst: all trajectories arrive at once. At each rate every scheme meets the same
    arrivals and the same token ids.
    """
    replay, variant = plan.replay, plan.variant
    trace = build_trace(replay.trace, replay.name, plan.context, variant.agents)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        field = find_entrants(backbone, replay, variant, folder)
        yield from field.left_out
        checks = check_entrants(backbone, field.entrants, trace, replay.seed, report)
        yield from (Failed(label, check) for label, check in checks.items() if not check.ok)
        entrants = [entrant for entrant in field.entrants if checks[entrant.label].ok]
        if not entrants:
            return
        ride_rows = choose_ride_rows(backbone, replay, entrants)
        run = {
            "seed": replay.seed,
            "tool_wait_s": replay.tool_wait_s,
            "adapter_source": field.adapter_source,
            "beyond_positions": trace.num_tokens > backbone.max_positions,
            **describe_machine(backbone.device),
        }
        bench = _Bench(backbone, plan, trace, report)
        for entrant in entrants:
            bench.open(stack, entrant, ride_rows, run)
        burst = bench.play(None)
        yield burst
        saturation = {found.point.scheme: found.point.completed_per_s for found in burst}
        rates = plan.rates or tuple(load * max(saturation.values()) for load in plan.loads)
        for rate in rates:
            yield bench.play(rate, saturation)


class _Bench:
    """The engines of all schemes, idle until it is their turn."""

    def __init__(self, backbone: Backbone, plan: ServePlan, trace: Trace, report: Report) -> None:
        self._backbone, self._plan, self._trace, self._report = backbone, plan, trace, report
        seed = plan.replay.seed
        self._contexts = [random_contexts(trace, backbone.vocab_size, seed + n) for n in range(plan.trajectories)]
        self._contestants: list[tuple[EngineContestant, Mapping[str, Any]]] = []

    def open(self, stack: ExitStack, entrant: Entrant, ride_rows: int, run: Mapping[str, Any]) -> None:
        label, scheme, adapters = entrant
        contestant = EngineContestant(
            label, scheme, self._backbone, adapters, max_tokens=self._trace.num_tokens, ride_rows=ride_rows
        )
        stack.callback(contestant.close)
        declared = {**declare(scheme, self._backbone, adapters), "ride_rows": ride_rows if scheme.rides else None}
        self._contestants.append((contestant, {**declared, **run}))

    def play(self, rate: float | None, saturation: Mapping[str, float] | None = None) -> list[Found]:
        """All schemes under the same load, one after another; the burst (no rate) warms each up before."""
        plan, trace = self._plan, self._trace
        times = arrival_times(plan.arrivals, rate, plan.trajectories, len(trace.calls), plan.replay.seed)
        stage = "saturation" if rate is None else f"{rate:.3g} {plan.arrivals}/s"
        found = []
        for index, (contestant, declared) in enumerate(self._contestants):
            self._report(stage, index, len(self._contestants))
            if rate is None:
                play(contestant, trace, self._contexts[0])
            served = serve(contestant.engine, trace, self._contexts, times, tool_wait_s=plan.replay.tool_wait_s)
            own = saturation[contestant.label] if saturation is not None else None
            found.append(Found(point_of(contestant.label, plan.arrivals, rate, own, trace, served), trace, declared))
        self._report(stage, len(self._contestants), len(self._contestants))
        return found
