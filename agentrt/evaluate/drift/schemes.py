"""Which schemes a drift measures unless they are named: those that differ in what is attended to, not in when."""

from collections.abc import Sequence
from typing import Final

from agentrt.config.scheme import parse_scheme
from agentrt.evaluate.fidelity import REFERENCE
from agentrt.evaluate.replay.entrants import spell_schemes
from agentrt.schemes import SCHEMES

TAILS: Final = (64, 16, 1)


def parse_drift_schemes(text: str, agents: Sequence[str]) -> list[str]:
    """`core`, `all`, or schemes with their options; non_shared, which all are held against, is left out.

    Schedules of rebase_shared leave the same cache, so it stands here once for each pivot and tail.
    Raises SchemeError for a scheme or option that does not exist, UsageError for an empty list.
    """
    tails = [f"rebase_shared:adapted_tail={tail}" for tail in TAILS]
    pivots = [f"rebase_shared:pivot={agent}" for agent in agents]
    core = ["full_shared", "base_shared", "pre_lr_shared", "rebase_shared", *tails, *pivots]
    boundaries = [f"neutral_prefix:{each}" for each in ("early", "question", "full")]
    named = {parse_scheme(each).name for each in (*core, *boundaries)} | {REFERENCE}
    spelled = {"droidspeak_scattered": "droidspeak_scattered:layers=spread"}
    others = [*boundaries, *(spelled.get(name, name) for name in SCHEMES if name not in named)]
    labels = spell_schemes(text, {"core": core, "all": [*core, *others]})
    return [label for label in labels if label != REFERENCE]
