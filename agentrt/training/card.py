"""The training card of an adapter folder: from what, how and with what result it was trained."""

import hashlib
import json
import platform
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

from agentrt.training.settings import TrainSettings
from agentrt.training.sources import Skipped
from agentrt.training.trainer import TrainResult

CARD_FILE = "card.json"


class DataFile(NamedTuple):
    """A file that went into the training data. Only its name is kept, not where it lay."""

    name: str
    sha256: str
    bytes: int


def data_file(path: Path) -> DataFile:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256")
    return DataFile(path.name, digest.hexdigest(), path.stat().st_size)


def skip_counts(skipped: Sequence[Skipped]) -> dict[str, int]:
    """How many questions gave no trajectory, by reason; the value that a reason names is left out."""
    return dict(sorted(Counter(one.reason.partition(": ")[0] for one in skipped).items()))


def write_card(
    folder: Path,
    *,
    role: str,
    base_model: str,
    adapter: dict[str, Any],
    settings: TrainSettings,
    data: dict[str, Any],
    result: TrainResult,
    finished: bool,
    started_from: dict[str, Any] | None = None,
) -> None:
    """Write `card.json` beside the adapter. No path of the machine and no date is in it.

    `started_from` is the card of the adapter that training went on from (see `read_card`), None for a fresh one.
    """
    card = {
        "role": role,
        "base_model": base_model,
        "adapter": adapter,
        "training": asdict(settings),
        "data": data,
        "started_from": started_from,
        "result": {
            "finished": finished,
            "steps": result.steps,
            "tokens": result.tokens,
            "targets": result.targets,
            "seconds": round(result.seconds, 1),
            "loss_first_20_steps": round(result.first_loss, 4),
            "loss_last_20_steps": round(result.last_loss, 4),
            "held_out_before": result.held_out_before._asdict() if result.held_out_before else None,
            "held_out": result.held_out._asdict() if result.held_out else None,
            "held_out_shared": result.held_out_shared._asdict() if result.held_out_shared else None,
        },
        "versions": {
            "python": platform.python_version(),
            **{name: _version(name) for name in ("agentrt", "torch", "transformers", "peft")},
        },
    }
    path = folder / CARD_FILE
    path.write_text(json.dumps(card, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def read_card(folder: Path) -> dict[str, Any]:
    """How an adapter came to be, as far as its card tells: what `started_from` quotes; empty without a card."""
    path = folder / CARD_FILE
    if not path.is_file():
        return {}
    card = json.loads(path.read_text(encoding="utf-8"))
    return {key: card[key] for key in ("training", "result", "started_from") if card.get(key) is not None}


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:  # run from a checkout that was never installed
        return "not installed"
