"""Whether a team knows when it is right: its confidence, and its last verdict, held against the scores."""

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from agentrt.evaluate.evaluation.row import EpisodeRow
from agentrt.runtime.result import EpisodeResult

_SIGNS: Final[dict[str, Callable[[EpisodeResult], float | None]]] = {
    "confidence": lambda result: result.confidence,
    "verdict": lambda result: float(result.verdicts[-1] == "right") if result.verdicts else None,
}


def told_apart(rows: Sequence[EpisodeRow]) -> dict[str, float | None]:
    """By sign: how often it is higher for a right answer than for a wrong one, over all such pairs; ties count half
    (the AUC). 0.5 is chance; None where there are no such pairs."""
    found: dict[str, float | None] = {}
    for name, read in _SIGNS.items():
        signs: dict[bool, list[float]] = {True: [], False: []}
        for row in rows:
            if row.result is not None and row.result.answer is not None:
                sign = read(row.result)
                if sign is not None:
                    signs[row.correct].append(sign)
        found[name] = auc(signs[True], signs[False])
    return found


def auc(right: Sequence[float], wrong: Sequence[float]) -> float | None:
    """The area under the ROC curve of `right` against `wrong`; None without either."""
    if not right or not wrong:
        return None
    ranked = np.sort(wrong)
    below, not_above = (np.searchsorted(ranked, right, side).mean() for side in ("left", "right"))
    return round(float((below + not_above) / 2 / len(ranked)), 6)
