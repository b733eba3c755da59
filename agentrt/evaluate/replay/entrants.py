"""Which schemes a replay compares: `core`, `all` or names, in the order they were asked for."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from agentrt.config.scheme import parse_scheme
from agentrt.errors import UsageError
from agentrt.evaluate.replay.trace import Call
from agentrt.schemes import SCHEMES
from agentrt.schemes.make import make_scheme

REBASE = "rebase_shared"


class LeftOut(NamedTuple):
    """A scheme of `core` or `all` that these adapters do not allow."""

    label: str
    reason: str
    group: str = ""
    """Of a replay's trace that has variants: which."""

    def to_record(self) -> dict[str, Any]:
        """One JSON object; its keys are stable."""
        return {"event": "left_out", "scheme": self.label, "variant": self.group or None, "reason": self.reason}


def core_schemes(calls: Sequence[Call]) -> list[str]:
    """The baselines and what is compared most; the pivot is whoever makes most calls."""
    pivot = Counter(call.agent for call in calls).most_common(1)[0][0]
    rebase = ("lp", "db", "auto", "auto,adapted_tail=16", f"auto,pivot={pivot}")
    return ["non_shared", "full_shared", "base_shared", "pre_lr_shared", *(f"{REBASE}:{each}" for each in rebase)]


def all_schemes(calls: Sequence[Call]) -> list[str]:
    """`core`, the other schedules and boundaries, and every other scheme there is.

    droidspeak_scattered with scattered layers: with its default it would run as droidspeak.
    """
    boundaries = [f"neutral_prefix:{each}" for each in ("question", "full")]  # without a preamble the others are native
    core = [*core_schemes(calls), f"{REBASE}:fused", f"{REBASE}:lp,lp_at=handover", *boundaries]
    named = {parse_scheme(each).name for each in core}
    spelled = {"droidspeak_scattered": "droidspeak_scattered:layers=spread"}
    return [*core, *(spelled.get(name, name) for name in SCHEMES if name not in named)]


def parse_schemes(text: str, calls: Sequence[Call]) -> list[str]:
    """`core`, `all`, or schemes with their options: `non_shared,rebase_shared:auto,adapted_tail=16,full_shared`.

    Raises SchemeError for a scheme or option that does not exist, UsageError for an empty list.
    """
    return spell_schemes(text, {"core": core_schemes(calls), "all": all_schemes(calls)})


def spell_schemes(text: str, groups: Mapping[str, Sequence[str]]) -> list[str]:
    """Schemes named in `text`, each once and in one spelling; a word of `groups` stands for its schemes.

    Raises as `parse_schemes`.
    """
    names: list[str] = []
    for word in filter(None, (word.strip() for word in text.split(","))):
        if "=" in word and ":" not in word and names:  # a further option of the scheme before
            names[-1] += f",{word}"
        else:
            names.append(word)
    spelled = [str(parse_scheme(each)) for name in names for each in groups.get(name, [name])]
    if not spelled:
        raise UsageError("--schemes: name at least one scheme, or core, or all")
    for name in spelled:
        make_scheme(name)
    return list(dict.fromkeys(spelled))


def is_group(text: str) -> bool:
    """Whether `text` leaves the choice of schemes to us: those that the adapters do not allow may be left out."""
    return text.strip() in ("core", "all")
