"""What episodes cost as they came: the figures of PReCache's Table 3, and how many ran into a limit."""

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any, Final

from agentrt.evaluate.evaluation.row import EpisodeRow
from agentrt.runtime.result import EpisodeResult

Figure = Callable[[EpisodeResult], float]


def ttft_s(result: EpisodeResult) -> float:
    """Summed over the calls of the episode."""
    return sum(usage.turns * usage.ttft_s for usage in result.usage.values())


FIGURES: Final[Mapping[str, Figure]] = {
    "ttft_s": ttft_s,
    "model_latency_s": lambda result: result.timing.turns_s,
    "end_to_end_s": lambda result: result.timing.total_s,
    "trajectory_tokens": lambda result: float(len(result.token_ids)),
    "generated_tokens": lambda result: float(sum(usage.generated_tokens for usage in result.usage.values())),
    "steps": lambda result: float(result.steps),
}
"""Of one episode; times in seconds, those of other episodes on the same engine included."""


def natural_figures(rows: Sequence[EpisodeRow]) -> dict[str, Any] | None:
    """Means over the episodes that came to a result; None where none did.

    `episodes`: how many those are. `trajectory_tokens`: mean and max.
    """
    results = [row.result for row in rows if row.result is not None]
    if not results:
        return None
    found: dict[str, Any] = {name: round(fmean(map(figure, results)), 4) for name, figure in FIGURES.items()}
    longest = max(len(result.token_ids) for result in results)
    found["trajectory_tokens"] = {"mean": found["trajectory_tokens"], "max": longest}
    return {"episodes": len(results), **found}


def limit_share(rows: Sequence[EpisodeRow]) -> float:
    """The share of episodes that a limit or the loop breaker ended, whether or not an answer was forced then."""
    return round(fmean(float(row.status.startswith("limit:") or row.status in ("loop", "forced")) for row in rows), 6)
