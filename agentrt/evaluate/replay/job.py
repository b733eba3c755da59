"""A whole replay: for every variant of the trace, adapters, checks, contestants, measurements and their judgement."""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from agentrt.engine.costs import measure_ride_rows
from agentrt.errors import SchemeError, UsageError
from agentrt.evaluate.replay.check import Check, Checker
from agentrt.evaluate.replay.contestant import EngineContestant
from agentrt.evaluate.replay.declare import declare, describe_machine
from agentrt.evaluate.replay.entrants import LeftOut, is_group
from agentrt.evaluate.replay.formulas import expected
from agentrt.evaluate.replay.maps import fit_maps
from agentrt.evaluate.replay.measure import Measured, measure
from agentrt.evaluate.replay.plan import ReplayPlan, Variant, variants
from agentrt.evaluate.replay.result import Outcome, judge
from agentrt.evaluate.replay.sets import AdapterSets
from agentrt.evaluate.replay.trace import Trace, build_trace
from agentrt.model.adapters import AdapterSet
from agentrt.model.backbone import Backbone
from agentrt.model.progress import Report, silent
from agentrt.schemes import Scheme
from agentrt.schemes.make import make_scheme

CHECKING = "checking that the schemes compute what they should"


class Finding(NamedTuple):
    """One scheme at one context, and what it declares."""

    group: str
    outcome: Outcome
    declared: Mapping[str, Any]


class Entrant(NamedTuple):
    label: str
    scheme: Scheme
    adapters: AdapterSet


class Field(NamedTuple):
    """Who takes part, and who may not."""

    entrants: list[Entrant]
    left_out: list[LeftOut]
    adapter_source: str


def run_replay(backbone: Backbone, plan: ReplayPlan, report: Report = silent) -> Iterator[list[Finding] | LeftOut]:
    """Yield each scheme left out, then, per variant and context, the findings of all schemes side by side.

    Raises SchemeError for a scheme asked for by name that these adapters do not allow.
    """
    contexts = plan.contexts or plan.trace.contexts
    for variant in variants(plan):
        traces = [build_trace(plan.trace, plan.name, context, variant.agents) for context in contexts]
        with tempfile.TemporaryDirectory() as folder:
            field = find_entrants(backbone, plan, variant, Path(folder))
            yield from field.left_out
            yield from compare(backbone, plan, traces, field.entrants, field.adapter_source, variant.group, report)


def find_entrants(backbone: Backbone, plan: ReplayPlan, variant: Variant, folder: Path) -> Field:
    """The schemes of a variant with their adapters. Files that the schemes then need lie in `folder`.

    A scheme that takes maps and names no file has some fitted here. Raises SchemeError for a scheme asked for by
    name that these adapters do not allow, UsageError where none of a group may take part.
    """
    entrants: list[Entrant] = []
    left_out: list[LeftOut] = []
    sets = AdapterSets(backbone, plan, variant, folder)
    for label in variant.labels:
        scheme = make_scheme(label)
        adapters = sets.of(scheme)
        try:
            if scheme.maps_file == "":
                scheme = fit_maps(scheme, backbone, adapters, folder, seed=plan.seed)
            scheme = scheme.fitted(backbone.content_hash, adapters.hashes)
            scheme.allow(backbone.layout(adapters))
            if adapters.invocations:
                raise SchemeError(
                    f"{label}: activated adapters act from their invocation on, and a trace's random tokens hold none; "
                    "measure them with `agentrt eval`"
                )
        except SchemeError as error:
            if not is_group(plan.schemes):
                raise
            left_out.append(LeftOut(label, str(error), variant.group))
        else:
            entrants.append(Entrant(label, scheme, adapters))
    if not entrants:
        raise UsageError(f"--schemes {plan.schemes}: no scheme can replay these adapters; {left_out[-1].reason}")
    return Field(entrants, left_out, sets.source)


def check_entrants(
    backbone: Backbone, entrants: Sequence[Entrant], trace: Trace, seed: int, report: Report = silent
) -> dict[str, Check]:
    """Whether each scheme computes what it should, by label."""
    checks: dict[str, Check] = {}
    checkers: dict[str, Checker] = {}
    for index, (label, scheme, adapters) in enumerate(entrants):
        report(CHECKING, index, len(entrants))
        key = adapters.content_hash
        if key not in checkers:
            checkers[key] = Checker(backbone, adapters, trace, seed=seed)
        checks[label] = checkers[key].check(scheme)
    report(CHECKING, len(entrants), len(entrants))
    return checks


def compare(
    backbone: Backbone,
    plan: ReplayPlan,
    traces: Sequence[Trace],
    entrants: Sequence[Entrant],
    adapter_source: str = "",
    group: str = "",
    report: Report = silent,
) -> Iterator[list[Finding]]:
    """Check the entrants once, then run them side by side on each trace; findings in the order of `entrants`."""
    checks = check_entrants(backbone, entrants, traces[0], plan.seed, report)
    ride_rows = choose_ride_rows(backbone, plan, entrants)
    for trace in traces:
        stage = f"{trace.name}, C = {trace.context:,} {group}".rstrip()
        measured = _measure(backbone, plan, trace, entrants, ride_rows, stage, report)
        books = {
            each.label: expected(each.scheme, trace, backbone.layout(each.adapters), riding=ride_rows > 0)
            for each in entrants
        }
        run = {
            "repeats": plan.repeats,
            "tool_wait_s": plan.tool_wait_s * sum(call.tool for call in trace.calls),
            "seed": plan.seed,
            "adapter_source": adapter_source,
            "beyond_positions": trace.num_tokens > backbone.max_positions,
            **describe_machine(backbone.device),
        }
        yield [
            Finding(
                group,
                outcome,
                {**declare(scheme, backbone, adapters), "ride_rows": ride_rows if scheme.rides else None, **run},
            )
            for outcome, (_, scheme, adapters) in zip(judge(measured, books, checks), entrants, strict=True)
        ]


def choose_ride_rows(backbone: Backbone, plan: ReplayPlan, entrants: Sequence[Entrant]) -> int:
    """One figure for all entrants, so that they differ in nothing else."""
    riders = [entrant for entrant in entrants if entrant.scheme.rides]
    if not riders:
        return 0
    return measure_ride_rows(backbone, riders[0].adapters) if plan.ride_rows is None else plan.ride_rows


def _measure(
    backbone: Backbone,
    plan: ReplayPlan,
    trace: Trace,
    entrants: Sequence[Entrant],
    ride_rows: int,
    stage: str,
    report: Report,
) -> list[Measured]:
    with ExitStack() as stack:
        contestants = []
        for label, scheme, adapters in entrants:
            contestants.append(
                EngineContestant(label, scheme, backbone, adapters, max_tokens=trace.num_tokens, ride_rows=ride_rows)
            )
            stack.callback(contestants[-1].close)
        return measure(
            contestants,
            trace,
            vocab_size=backbone.vocab_size,
            repeats=plan.repeats,
            tool_wait_s=plan.tool_wait_s,
            seed=plan.seed,
            stage=stage,
            report=report,
        )
