"""From what was measured to one sentence: which scheme these adapters should use, what it costs, and why."""

from collections.abc import Mapping, Sequence
from typing import Final, Literal

from agentrt.config.scheme import parse_scheme
from agentrt.evaluate.drift.geometry import Figures
from agentrt.evaluate.fidelity import Estimate, Fidelity
from agentrt.evaluate.statistics import bootstrap_mean

ROUNDING: Final = 1e-5
"""Nats. Divergences that differ by less are the same."""

Base = Literal["previous", "neutral"]


def choose(found: Sequence[Fidelity], reference: Fidelity) -> Fidelity:
    """The cheapest (rows, then bytes) of the schemes that are not measurably farther from `reference` than the nearest.

    Returns `reference` where no scheme is worth having.
    """
    worth = worth_having(found, reference)
    if not worth:
        return reference
    nearest = min(worth, key=lambda each: each.overall.mean)
    equal = [each for each in worth if not farther(each, nearest)]
    return min(equal, key=lambda each: (each.rows, each.kv_bytes_peak, each.overall.mean))


def worth_having(found: Sequence[Fidelity], reference: Fidelity) -> list[Fidelity]:
    """Schemes that hold less or run less than `reference`."""
    return [each for each in found if each.kv_bytes_peak < reference.kv_bytes_peak or each.rows < reference.rows]


def farther(one: Fidelity, other: Fidelity) -> bool:
    """Whether the 95 % interval of the paired difference lies above zero (of one trajectory: the difference)."""
    differences = [a - b for a, b in zip(one.values, other.values, strict=True)]
    if sum(differences) / len(differences) <= ROUNDING:
        return False
    interval = bootstrap_mean(differences)
    return interval is None or interval.low > 0


def verdict(found: Sequence[Fidelity], reference: Fidelity, base: Figures) -> str:
    """The sentence. `base`: the figures of base caches over all handovers and layers."""
    chosen = choose(found, reference)
    if chosen is reference:
        return (
            f"These adapters should use non_shared ({_cost(reference)}), because none of the schemes measured holds "
            "less or runs less."
        )
    rank, why = _rank(chosen, worth_having(found, reference)), _why(chosen, base)
    return (
        f"These adapters should use {chosen.label}: it costs {_cost(chosen)} (non_shared: {_cost(reference)}) and "
        f"moves the next-token distribution by {_nats(chosen.overall)}, {rank}{why}."
    )


def _cost(each: Fidelity) -> str:
    return f"{each.rows:,.0f} rows and {each.kv_bytes_peak / 2**20:.1f} MiB a trajectory"


def _nats(estimate: Estimate) -> str:
    interval = estimate.ci95
    tail = "1 trajectory" if interval is None else f"95 % {interval.low:.4f} to {interval.high:.4f}"
    return f"KL {estimate.mean:.4f} ({tail})"


def _rank(chosen: Fidelity, worth: Sequence[Fidelity]) -> str:
    nearest = min(worth, key=lambda each: each.overall.mean)
    if len(worth) == 1:
        return "the only scheme measured that holds or runs less"
    if nearest is chosen:
        return f"the least of {len(worth)} schemes that hold or run less"
    return f"the cheapest not measurably farther than the nearest ({nearest.label}, KL {nearest.overall.mean:.4f})"


def _why(chosen: Fidelity, base: Figures) -> str:
    if base.previous is None or base.neutral is None:
        return ", and no agent reads what another has processed"
    nearer: Base = "neutral" if base.neutral < base.previous else "previous"
    names: Mapping[Base, str] = {"previous": "the previous speaker's", "neutral": "the neutral"}
    other: Base = "previous" if nearer == "neutral" else "neutral"
    errors = {"previous": base.previous, "neutral": base.neutral}
    shares = base_of(chosen.label)
    link = "although" if shares is not None and shares != nearer else "because" if shares == nearer else "while"
    return (
        f", {link} {names[nearer]} base cache is nearer to an agent's own than {names[other]} one (relative error "
        f"{errors[nearer]:.3f} against {errors[other]:.3f})"
    )


def base_of(label: str) -> Base | None:
    """Whose base cache the scheme shares; None where it is somebody else's, or mended in part."""
    config = parse_scheme(label)
    if config.name in ("full_shared", "pre_lr_shared", "base_lr_shared"):
        return "previous"
    if config.name == "rebase_shared" and config.options.get("pivot", "neutral") == "neutral":
        return "neutral"
    return "neutral" if config.name in ("neutral_prefix", "alora") else None
