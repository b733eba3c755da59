"""A whole drift: every sample through the geometry and through each scheme."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from agentrt.errors import SchemeError, UsageError
from agentrt.evaluate.drift.handovers import Geometry
from agentrt.evaluate.drift.rows import Row, RowBook, identity
from agentrt.evaluate.drift.schemes import parse_drift_schemes
from agentrt.evaluate.drift.verdict import verdict
from agentrt.evaluate.fidelity import REFERENCE, Fidelity, hold_against_reference
from agentrt.evaluate.forced import Sample, check_samples
from agentrt.evaluate.replay.entrants import LeftOut, is_group
from agentrt.model.adapters import AdapterSet
from agentrt.model.backbone import Backbone
from agentrt.model.progress import Report, silent
from agentrt.schemes import Scheme
from agentrt.schemes.make import make_scheme


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
    rows: Path | None = None,
    report: Report = silent,
) -> Drift:
    """Force each sample through the model, alone, under every adapter and under every scheme.

    `rows`: a file that gets a line for each sample as it is done; samples that it has already are not run again.
    Raises UsageError for such a file of another measurement, SchemeError for a scheme asked for by name that these
    adapters do not allow, DataError for a sample that they cannot run.
    """
    check_samples(samples, adapters, backbone)
    agents = list(dict.fromkeys(agent for sample in samples for agent in sample.agents))
    entrants, left_out = _entrants(schemes, backbone, adapters, agents)
    book = RowBook.open(rows, identity(backbone, adapters, entrants)) if rows else None
    geometry, reference = Geometry(backbone.num_layers), Fidelity(REFERENCE)
    found = {label: Fidelity(label) for label in entrants}
    done, total = 0, len(samples) * (len(entrants) + 2)

    def tick(steps: int = 1) -> None:
        nonlocal done
        done += steps
        report("forcing trajectories", done, total)

    tick(0)
    for sample in samples:
        row = book.find(sample) if book else None
        if row is None:
            row = _measure(backbone, adapters, sample, entrants, tick)
            if book:
                book.add(sample, row)
        else:
            tick(len(entrants) + 2)
        geometry.merge(row.geometry)
        reference.add(row.reference)
        for label, held in row.schemes.items():
            found[label].add(held)
    return Drift(tuple(samples), geometry, reference, tuple(found.values()), tuple(left_out))


def _measure(
    backbone: Backbone, adapters: AdapterSet, sample: Sample, entrants: Mapping[str, Scheme], tick: Callable[[], None]
) -> Row:
    geometry = Geometry(backbone.num_layers)
    geometry.measure(backbone, adapters, sample)
    tick()
    return Row(geometry, *hold_against_reference(sample, backbone, adapters, entrants, tick))


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
