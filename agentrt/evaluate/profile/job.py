"""Probes layers by the schemes themselves: what reusing or repairing some does to the next token."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from agentrt.config.problems import suggest
from agentrt.errors import UsageError
from agentrt.evaluate.fidelity import Fidelity, hold_against_reference
from agentrt.evaluate.forced import Sample, check_samples
from agentrt.model.adapters import AdapterSet
from agentrt.model.backbone import Backbone
from agentrt.model.progress import Report, silent
from agentrt.schemes.make import make_scheme

SHARE: Final = 0.3  # DroidSpeak as LRAgent and PReCache run it: the part of the layers that is computed again


@dataclass(frozen=True)
class Probes:
    """One scheme's probes: KL against non_shared in nats by what was probed, and the layers that follow."""

    scheme: str
    found: Mapping[str, Fidelity]
    layers: str

    @property
    def values(self) -> dict[str, float]:
        return {probe: each.overall.mean for probe, each in self.found.items()}


def probed_schemes(text: str) -> list[str]:
    """`all`, or names. Raises UsageError for one that has no layers to be measured."""
    names = list(_PROBED) if text.strip() == "all" else [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise UsageError(f"--schemes: name at least one of {', '.join(_PROBED)}, or all")
    for name in names:
        if name not in _PROBED:
            raise UsageError(f"--schemes: {name!r} has no layers to be measured{suggest(name, _PROBED, 'schemes')}")
    return list(dict.fromkeys(names))


def check_share(share: float) -> None:
    """Raises UsageError where it is no part of the layers."""
    if not 0 < share <= 1:
        raise UsageError(f"--share {share}: write a number above 0 up to 1, the part of the layers computed again")


def run_profile(
    backbone: Backbone,
    adapters: AdapterSet,
    samples: Sequence[Sample],
    *,
    schemes: str = "all",
    share: float = SHARE,
    report: Report = silent,
) -> list[Probes]:
    """Probe every layer or group of `share` of the layers, for each scheme. Raises DataError, UsageError."""
    check_share(share)
    names = probed_schemes(schemes)
    check_samples(samples, adapters, backbone)
    count = max(1, round(share * backbone.num_layers))
    probes = {name: _probes(name, backbone.num_layers, count) for name in names}
    total = len(samples) * (1 + sum(map(len, probes.values())))
    done = 0

    def tick() -> None:
        nonlocal done
        done += 1
        report("probing layers", done, total)

    report("probing layers", 0, total)
    entrants = {
        (name, probe): make_scheme(name, {"layers": layers}) for name in names for probe, layers in probes[name].items()
    }
    found = {key: Fidelity(f"{key[0]}:{key[1]}") for key in entrants}
    for sample in samples:
        _, held = hold_against_reference(sample, backbone, adapters, entrants, tick)
        for key, each in held.items():
            found[key].add(each)
    profiles = []
    for name in names:
        of_scheme = {probe: each for (scheme, probe), each in found.items() if scheme == name}
        values = {probe: each.overall.mean for probe, each in of_scheme.items()}
        profiles.append(Probes(name, of_scheme, _PROBED[name](values, count)))
    return profiles


def facts(profiles: Sequence[Probes], samples: Sequence[Sample], share: float) -> dict[str, Any]:
    """How the layers were found."""
    return {
        "share": share,
        "trajectories": len(samples),
        "tokens": sum(len(sample.token_ids) for sample in samples),
        "kl_by_probe": {each.scheme: each.values for each in profiles},
    }


def _probes(scheme: str, num_layers: int, count: int) -> dict[str, str]:
    """What is probed, and the layers computed again for it: a group of neighbours, or all layers but one."""
    if scheme == SCATTERED:
        return {
            str(layer): _listed([each for each in range(num_layers) if each != layer]) for layer in range(num_layers)
        }
    groups = (f"{first}-{first + count - 1}" for first in range(num_layers - count + 1))
    return {group: group for group in groups}


def _least(values: Mapping[str, float], count: int) -> str:
    """The group whose repair leaves least."""
    del count
    return min(values, key=lambda probe: values[probe])


def _worst(values: Mapping[str, float], count: int) -> str:
    """The layers whose reuse, each alone, does most harm."""
    ranked = sorted(values, key=lambda probe: values[probe], reverse=True)
    return _listed(sorted(map(int, ranked[:count])))


def _listed(layers: Sequence[int]) -> str:
    return "+".join(map(str, layers)) or "none"


SCATTERED: Final = "droidspeak_scattered"
_PROBED: Final[Mapping[str, Callable[[Mapping[str, float], int], str]]] = {
    "droidspeak": _least,
    SCATTERED: _worst,
    "relay_caching": _least,
}
