"""A drift as one JSON object, and as figures."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from agentrt.evaluate.drift.geometry import Tally
from agentrt.evaluate.drift.handovers import BIN, PARTS, Geometry, Part
from agentrt.evaluate.drift.job import Drift
from agentrt.evaluate.fidelity import Estimate, Fidelity
from agentrt.evaluate.figures import Panel, draw_panels
from agentrt.evaluate.replay.declare import describe_machine
from agentrt.model.adapters import AdapterSet
from agentrt.model.backbone import Backbone

_NAMES: Final[Mapping[Part, str]] = {
    "hidden": "hidden states",
    "base": "base caches (K, V0)",
    "full": "whole K and V",
}


def to_record(drift: Drift, declared: Mapping[str, Any]) -> dict[str, Any]:
    """Its keys are stable."""
    geometry = drift.geometry
    return {
        "event": "drift",
        "trajectories": len(drift.samples),
        "tokens": sum(len(sample.token_ids) for sample in drift.samples),
        "generated_tokens": sum(len(sample.authors) for sample in drift.samples),
        "schemes": [_scheme(each) for each in (drift.reference, *drift.schemes)],
        "left_out": [{"scheme": each.label, "reason": each.reason} for each in drift.left_out],
        "layers": {
            part: {
                "all": [each.figures._asdict() for each in geometry.by_layer(part)],
                **{
                    transition: [each.figures._asdict() for each in geometry.by_layer(part, transition)]
                    for transition in geometry.transitions
                },
            }
            for part in PARTS
        },
        "last_layer_by_position": {
            part: [
                {"start": place.bin * BIN, "end": (place.bin + 1) * BIN, **tally.figures._asdict()}
                for place, tally in sorted(geometry.places.items(), key=lambda item: item[0].bin)
                if place.part == part
            ]
            for part in PARTS
        },
        "overall": {part: geometry.overall(part).figures._asdict() for part in PARTS},
        "sentence": drift.sentence,
        "declared": dict(declared),
    }


def declare_drift(backbone: Backbone, adapters: AdapterSet, seed: int) -> dict[str, Any]:
    """What the figures belong to."""
    return {
        "backbone": backbone.names[0],
        "backbone_hash": backbone.content_hash,
        "adapters": dict(adapters.hashes),
        "dtype": str(backbone.dtype).removeprefix("torch."),
        "seed": seed,
        **describe_machine(backbone.device),
    }


def _scheme(each: Fidelity) -> dict[str, Any]:
    return {
        "scheme": each.label,
        "kl": _estimate(each.overall),
        "by_role": {role: _estimate(found) for role, found in each.by_role.items()},
        "rows": round(each.rows, 1),
        "kv_bytes_peak": round(each.kv_bytes_peak),
    }


def _estimate(estimate: Estimate) -> dict[str, Any]:
    return {"mean": estimate.mean, "ci95": estimate.ci95, "trajectories": estimate.trajectories}


def draw(geometry: Geometry, file: Path) -> Path:
    """The errors and rho against 2 cos by layer, and in the last layer by position, as one PNG. Raises UsageError
    where matplotlib is missing."""
    last = {part: {p.bin: t for p, t in geometry.places.items() if p.part == part} for part in PARTS}
    panels = []
    for part in ("hidden", "base"):
        layers = dict(enumerate(geometry.by_layer(part)))
        full = dict(enumerate(geometry.by_layer("full"))) if part == "base" else {}
        panels.append(Panel(_NAMES[part], "layer", "relative error", _errors(layers, full)))
        panels.append(Panel(_NAMES[part], "layer", "", _angles(layers)))
        places, whole = last[part], last["full"] if part == "base" else {}
        title = f"{_NAMES[part]}, last layer"
        panels.append(Panel(title, "position", "relative error", _errors(places, whole, BIN)))
    return draw_panels(file, panels, columns=3)


def _errors(
    found: Mapping[int, Tally], full: Mapping[int, Tally], step: int = 1
) -> dict[str, list[tuple[float, float]]]:
    lines = {
        "previous speaker's": _line(found, "previous", step),
        "neutral": _line(found, "neutral", step),
        "full_shared: whole K and V": _line(full, "previous", step),
    }
    return {label: points for label, points in lines.items() if points}


def _angles(found: Mapping[int, Tally]) -> dict[str, list[tuple[float, float]]]:
    cosines = [(x, 2 * y) for x, y in _line(found, "cos", 1)]
    lines = {"rho": _line(found, "rho", 1), "2 cos": cosines, "Gamma_err": _line(found, "gamma", 1)}
    return {label: points for label, points in lines.items() if points}


def _line(found: Mapping[int, Tally], figure: str, step: int) -> list[tuple[float, float]]:
    values = ((x * step, getattr(tally.figures, figure)) for x, tally in found.items())
    return [(x, y) for x, y in values if y is not None]
