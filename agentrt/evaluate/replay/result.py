"""From runs and checks to what may be said: medians, books against the formulas, and ratios or why there are none."""

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any, Final, NamedTuple

from agentrt.evaluate.replay.check import Check
from agentrt.evaluate.replay.contestant import Run
from agentrt.evaluate.replay.formulas import Expected
from agentrt.evaluate.replay.measure import Measured

NON_SHARED: Final = "non_shared"
FULL_SHARED: Final = "full_shared"


class Ratios(NamedTuple):
    """This scheme over the named one, medians over the repeats; None where that one did not run or is not trusted.

    Runs of one repeat are compared, which took turns on the same machine at the same time.
    """

    ttft_vs_non_shared: float | None
    ttft_vs_full_shared: float | None
    throughput_vs_non_shared: float | None
    throughput_vs_full_shared: float | None


class Outcome(NamedTuple):
    """One scheme on one trace. `refused` says why there are no ratios; empty where there are.

    `wrong`: it was compared and differs, rather than that there is nothing to compare it with.
    """

    measured: Measured
    expected: Expected | None
    check: Check
    refused: str
    wrong: bool
    ratios: Ratios | None


def judge(
    measured: Sequence[Measured], expected: Mapping[str, Expected | None], checks: Mapping[str, Check]
) -> list[Outcome]:
    """Outcomes in the order of `measured`, which ran side by side. The other arguments are by label."""
    refused = {each.label: _refusal(each, expected[each.label], checks[each.label]) for each in measured}
    trusted = {each.label: each for each in measured if not refused[each.label]}
    outcomes = []
    for each in measured:
        reason = refused[each.label]
        books, check = expected[each.label], checks[each.label]
        wrong = bool(reason) and books is not None and check.tokens > 0
        outcomes.append(Outcome(each, books, check, reason, wrong, None if reason else _ratios(each, trusted)))
    return outcomes


def to_record(
    outcome: Outcome, declared: Mapping[str, Any], group: str = "", growth: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """One JSON object; its keys are stable. `growth`: over the same scheme on the first of several variants."""
    measured, run = outcome.measured, outcome.measured.middle
    expected, check = outcome.expected, outcome.check
    return {
        "event": "replay",
        "scheme": measured.label,
        "trace": measured.trace.name,
        "variant": group or None,
        "context": measured.trace.context,
        "agents": len(measured.trace.agents),
        "trajectory_tokens": measured.trace.num_tokens,
        "ttft_s": round(run.ttft_s, 4),
        "submit_to_first_token_s": round(run.submit_to_first_token_s, 4),
        "decode_s": round(run.decode_s, 4),
        "total_s": round(run.total_s, 4),
        "throughput_tok_s": round(measured.throughput_tok_s, 2),
        "kv_bytes_peak": run.kv_bytes_peak,
        "prefill_rows": run.prefill_rows,
        "neutral_rows": run.neutral_rows,
        "decode_rows": run.decode_rows,
        "repaired_layer_rows": run.repaired_layer_rows,
        "expected": expected._asdict() if expected else None,
        "check": check._asdict(),
        "ratios": dict.fromkeys(Ratios._fields) if outcome.ratios is None else outcome.ratios._asdict(),
        "growth": growth,
        "refused": outcome.refused or None,
        "runs": [{"ttft_s": round(each.ttft_s, 4), "total_s": round(each.total_s, 4)} for each in measured.runs],
        "declared": dict(declared),
    }


def _refusal(measured: Measured, expected: Expected | None, check: Check) -> str:
    if not check.ok:
        return f"the equivalence check failed: {check.reason}"
    if expected is None:
        return "there is no formula for its rows and bytes"
    for run in measured.runs:
        for name, wanted in expected._asdict().items():
            if (found := getattr(run, name)) != wanted:
                return f"{name} is {found:,}, its formula says {wanted:,}"
    return ""


def _ratios(measured: Measured, trusted: Mapping[str, Measured]) -> Ratios:
    def ratio(label: str, quotient: Callable[[Run, Run], float]) -> float | None:
        if label not in trusted:
            return None
        return round(median(map(quotient, measured.runs, trusted[label].runs)), 4)

    def ttft(ours: Run, theirs: Run) -> float:
        return ours.ttft_s / theirs.ttft_s

    def throughput(ours: Run, theirs: Run) -> float:
        return theirs.total_s / ours.total_s

    return Ratios(
        ratio(NON_SHARED, ttft),
        ratio(FULL_SHARED, ttft),
        ratio(NON_SHARED, throughput),
        ratio(FULL_SHARED, throughput),
    )
