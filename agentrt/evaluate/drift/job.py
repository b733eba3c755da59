"""A whole drift: every sample through the geometry and through each scheme."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from agentrt.errors import SchemeError, UsageError
from agentrt.evaluate.drift.handovers import Geometry
from agentrt.evaluate.drift.schemes import parse_drift_schemes
from agentrt.evaluate.drift.verdict import verdict
from agentrt.evaluate.fidelity import REFERENCE, Fidelity, hold_against_reference
from agentrt.evaluate.forced import Sample, check_samples
from agentrt.evaluate.replay.entrants import is_group
from agentrt.model.adapters import AdapterSet
from agentrt.model.backbone import Backbone
from agentrt.model.progress import Report, silent
from agentrt.schemes import Scheme
from agentrt.schemes.make import make_scheme


class LeftOut(NamedTuple):
    """A scheme of `core` or `all` that these adapters do not allow."""

    label: str
    reason: str


@dataclass(frozen=True)
class Drift:
    """What was measured. `reference` is non_shared: its divergence is 0 by definition, its costs are measured."""

    samples: tuple[Sample, ...]
    geometry: Geometry
    reference: Fidelity
    schemes: tuple[Fidelity, ...]
    left_out: tuple[LeftOut, ...]

    @property
    def sentence(self) -> str:
        return verdict(self.schemes, self.reference, self.geometry.overall("base").figures)


def run_drift(
    backbone: Backbone,
    adapters: AdapterSet,
    samples: Sequence[Sample],
    *,
    schemes: str = "core",
    report: Report = silent,
) -> Drift:
    """Force each sample through the model, alone, under every adapter and under every scheme.

    Raises SchemeError for a scheme asked for by name that these adapters do not allow, DataError for a sample that
    they cannot run.
    """
    check_samples(samples, adapters, backbone)
    agents = list(dict.fromkeys(agent for sample in samples for agent in sample.agents))
    entrants, left_out = _entrants(schemes, backbone, adapters, agents)
    geometry, reference = Geometry(backbone.num_layers), Fidelity(REFERENCE)
    found = {label: Fidelity(label) for label in entrants}
    done, total = 0, len(samples) * (len(entrants) + 2)

    def tick() -> None:
        nonlocal done
        done += 1
        report("forcing trajectories", done, total)

    report("forcing trajectories", 0, total)
    for sample in samples:
        geometry.measure(backbone, adapters, sample)
        tick()
        hold_against_reference(sample, backbone, adapters, reference, entrants, found, tick)
    return Drift(tuple(samples), geometry, reference, tuple(found.values()), tuple(left_out))


def _entrants(
    text: str, backbone: Backbone, adapters: AdapterSet, agents: Sequence[str]
) -> tuple[dict[str, Scheme], list[LeftOut]]:
    entrants: dict[str, Scheme] = {}
    left_out: list[LeftOut] = []
    layout = backbone.layout(adapters)
    make_scheme(REFERENCE).allow(layout)
    for label in parse_drift_schemes(text, agents):
        scheme = make_scheme(label).fitted(backbone.content_hash, adapters.hashes)
        try:
            scheme.allow(layout)
        except SchemeError as error:
            if not is_group(text):
                raise
            left_out.append(LeftOut(label, str(error)))
        else:
            entrants[label] = scheme
    if not entrants:
        raise UsageError(f"--schemes {text}: name at least one scheme besides {REFERENCE}, which is the reference")
    return entrants, left_out
