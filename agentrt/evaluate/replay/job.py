"""A whole replay: for every variant of the trace, adapters, checks, contestants, measurements and their judgement."""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from agentrt.engine.costs import measure_ride_rows
from agentrt.errors import SchemeError, UsageError
from agentrt.evaluate.replay.check import Check, Checker
from agentrt.evaluate.replay.contestant import EngineContestant
from agentrt.evaluate.replay.declare import declare, describe_machine
from agentrt.evaluate.replay.entrants import LeftOut, is_group
from agentrt.evaluate.replay.formulas import Expected, expected
from agentrt.evaluate.replay.growth import Growth, grown
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
    """One scheme at one context, what it declares, and how it compares with the same on the trace's first variant."""

    group: str
    outcome: Outcome
    declared: Mapping[str, Any]
    growth: Growth | None


class Entrant(NamedTuple):
    label: str
    scheme: Scheme
    adapters: AdapterSet


class Field(NamedTuple):
    """Who takes part in a variant of the trace, on which traces, one a context, and who may not."""

    group: str
    traces: list[Trace]
    entrants: list[Entrant]
    left_out: list[LeftOut]
    adapter_source: str


def run_replay(backbone: Backbone, plan: ReplayPlan, report: Report = silent) -> Iterator[list[Finding] | LeftOut]:
    """Yield each scheme left out, then, per context and variant, the findings of all schemes.

    All schemes and variants run side by side. Raises SchemeError for a scheme asked for by name that these adapters do
    not allow.
    """
    with ExitStack() as stack:
        fields = []
        for variant in variants(plan):
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            fields.append(find_entrants(backbone, plan, variant, folder))
            yield from fields[-1].left_out
        yield from compare(backbone, plan, fields, report)


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
    contexts = plan.contexts or plan.trace.contexts
    traces = [build_trace(plan.trace, plan.name, context, variant.agents) for context in contexts]
    return Field(variant.group, traces, entrants, left_out, sets.source)


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
    backbone: Backbone, plan: ReplayPlan, fields: Sequence[Field], report: Report = silent
) -> Iterator[list[Finding]]:
    """Check all entrants once, then run those of all fields side by side on each trace; a list for each field."""
    checks = [check_entrants(backbone, each.entrants, each.traces[0], plan.seed, report) for each in fields]
    ride_rows = [choose_ride_rows(backbone, plan, each.entrants) for each in fields]
    for index in range(len(fields[0].traces)):
        measured = _measure(backbone, plan, fields, index, ride_rows, report)
        first: dict[str, Outcome] = {}
        for field, found, checked, riding in zip(fields, measured, checks, ride_rows, strict=True):
            outcomes = judge(found, _books(backbone, field, index, riding), checked)
            declared = _declare(backbone, plan, field, index, riding)
            yield [
                Finding(field.group, outcome, each, _growth(outcome, first, fields[0].group))
                for outcome, each in zip(outcomes, declared, strict=True)
            ]
            first = first or {each.measured.label: each for each in outcomes}


def choose_ride_rows(backbone: Backbone, plan: ReplayPlan, entrants: Sequence[Entrant]) -> int:
    """One figure for all entrants, so that they differ in nothing else."""
    riders = [entrant for entrant in entrants if entrant.scheme.rides]
    if not riders:
        return 0
    return measure_ride_rows(backbone, riders[0].adapters) if plan.ride_rows is None else plan.ride_rows


def _measure(
    backbone: Backbone, plan: ReplayPlan, fields: Sequence[Field], index: int, ride_rows: Sequence[int], report: Report
) -> list[list[Measured]]:
    """By field, the measurements of its entrants on its trace `index`."""
    with ExitStack() as stack:
        lanes = []
        for field, riding in zip(fields, ride_rows, strict=True):
            trace = field.traces[index]
            for label, scheme, adapters in field.entrants:
                most = trace.num_tokens
                contestant = EngineContestant(label, scheme, backbone, adapters, max_tokens=most, ride_rows=riding)
                stack.callback(contestant.close)
                lanes.append((contestant, trace))
        measured = iter(
            measure(
                lanes,
                vocab_size=backbone.vocab_size,
                repeats=plan.repeats,
                tool_wait_s=plan.tool_wait_s,
                seed=plan.seed,
                stage=f"{trace.name}, C = {trace.context:,}",
                report=report,
            )
        )
    return [list(islice(measured, len(field.entrants))) for field in fields]


def _books(backbone: Backbone, field: Field, index: int, ride_rows: int) -> dict[str, Expected | None]:
    trace = field.traces[index]
    return {
        each.label: expected(each.scheme, trace, backbone.layout(each.adapters), riding=ride_rows > 0)
        for each in field.entrants
    }


def _declare(
    backbone: Backbone, plan: ReplayPlan, field: Field, index: int, ride_rows: int
) -> Iterator[dict[str, Any]]:
    """What each entrant declares of itself and of the run."""
    trace = field.traces[index]
    run = {
        "repeats": plan.repeats,
        "tool_wait_s": plan.tool_wait_s * sum(call.tool for call in trace.calls),
        "seed": plan.seed,
        "adapter_source": field.adapter_source,
        "beyond_positions": trace.num_tokens > backbone.max_positions,
        **describe_machine(backbone.device),
    }
    for _, scheme, adapters in field.entrants:
        yield {**declare(scheme, backbone, adapters), "ride_rows": ride_rows if scheme.rides else None, **run}


def _growth(outcome: Outcome, first: Mapping[str, Outcome], over: str) -> Growth | None:
    before = first.get(outcome.measured.label)
    return None if before is None else grown(outcome, before, over)
