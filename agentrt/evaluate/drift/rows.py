"""A file of measured trajectories, a line each, so that a drift that was stopped goes on where it was."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self

from agentrt.errors import DataError, UsageError
from agentrt.evaluate.drift.handovers import Geometry
from agentrt.evaluate.fidelity import Held
from agentrt.evaluate.forced import Sample
from agentrt.evaluate.lines import append_line, read_lines
from agentrt.evaluate.replay.declare import maps_sha256
from agentrt.model.adapters import AdapterSet
from agentrt.model.backbone import Backbone
from agentrt.schemes import Scheme


class Row(NamedTuple):
    """One trajectory: its handovers, and its divergence under non_shared (which is 0) and by scheme."""

    geometry: Geometry
    reference: Held
    schemes: Mapping[str, Held]


def identity(backbone: Backbone, adapters: AdapterSet, schemes: Mapping[str, Scheme]) -> dict[str, Any]:
    """What must be the same for the rows of a file to go together, as JSON."""
    return {
        "event": "drift_rows",
        "version": 1,
        "backbone": backbone.content_hash,
        "layers": backbone.num_layers,
        "adapters": dict(adapters.hashes),
        "dtype": str(backbone.dtype).removeprefix("torch."),
        "schemes": {label: _spelled(scheme) for label, scheme in schemes.items()},
    }


def _spelled(scheme: Scheme) -> str:
    maps = maps_sha256(scheme)
    return f"{scheme.identity}, maps {maps}" if maps else scheme.identity


class RowBook:
    """The rows of a file by the content of their trajectories."""

    def __init__(self, file: Path, rows: Mapping[str, Row]) -> None:
        self._file = file
        self._rows = dict(rows)

    @classmethod
    def open(cls, file: Path, header: Mapping[str, Any]) -> Self:
        """Start the file, or go on with it. Raises UsageError where it measures something else, DataError for a line
        that cannot be read; a last line torn by a crash is dropped."""
        num_layers = int(header["layers"])
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            append_line(file, json.dumps(header))
            return cls(file, {})
        first, *others = read_lines(file, drop_torn=True) or ["{}"]
        stored = _read(file, 1, first)
        for name, value in header.items():
            if stored.get(name) != value:
                raise UsageError(
                    f"--rows {file}: its {name} is {stored.get(name)!r}, now it is {value!r}; measure the same, or "
                    "name another file"
                )
        rows = {}
        for number, line in enumerate(others, 2):
            stored = _read(file, number, line)
            try:
                held = {label: Held(*each) for label, each in stored["schemes"].items()}
                geometry = Geometry.restore(num_layers, stored["geometry"])
                rows[str(stored["tokens"])] = Row(geometry, Held(*stored["reference"]), held)
            except (ValueError, KeyError, TypeError) as error:
                raise DataError(f"{file}:{number}: not a row of a drift ({error!r})") from error
        return cls(file, rows)

    def find(self, sample: Sample) -> Row | None:
        return self._rows.get(_fingerprint(sample))

    def add(self, sample: Sample, row: Row) -> None:
        """Write the row; it is whole on the disk when this returns."""
        key = _fingerprint(sample)
        stored = {
            "sample": sample.id,
            "tokens": key,
            "reference": row.reference,
            "schemes": row.schemes,
            "geometry": row.geometry.stored,
        }
        append_line(self._file, json.dumps(stored, ensure_ascii=False))
        self._rows[key] = row


def _read(file: Path, number: int, line: str) -> dict[str, Any]:
    try:
        return dict(json.loads(line))
    except (ValueError, TypeError) as error:
        raise DataError(f"{file}:{number}: not a line of JSON ({error})") from error


def _fingerprint(sample: Sample) -> str:
    return hashlib.sha256(json.dumps([sample.preamble, sample.calls]).encode()).hexdigest()
