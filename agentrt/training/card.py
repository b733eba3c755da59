"""The training card of an adapter folder: from what, how and with what result it was trained."""

import hashlib
import json
import platform
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final, NamedTuple

from agentrt.errors import UsageError
from agentrt.training.readme import README_FILE, adapter_readme
from agentrt.training.settings import TrainSettings
from agentrt.training.sources import Skipped
from agentrt.training.trainer import TrainResult

CARD_FILE: Final = "card.json"


class DataFile(NamedTuple):
    """A file that went into the training data. Only its name is kept, not where it lay."""

    name: str
    sha256: str
    bytes: int


def data_file(path: Path) -> DataFile:
    """Raises UsageError for a file that cannot be read."""
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256")
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror or error})") from None
    return DataFile(path.name, digest.hexdigest(), path.stat().st_size)


def skip_counts(skipped: Sequence[Skipped]) -> dict[str, int]:
    """How many questions gave no trajectory, by reason; the value that a reason names is left out."""
    return dict(sorted(Counter(one.reason.partition(": ")[0] for one in skipped).items()))


def make_card(
    *,
    role: str,
    base_model: str,
    adapter: dict[str, Any],
    settings: TrainSettings,
    data: dict[str, Any],
    result: TrainResult,
    started_from: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """All that is known of a trained adapter, as JSON. No path of the machine and no date is in it.

    `started_from` is the card of the adapter that training went on from (see `read_card`), None for a fresh one.
    """
    held_out = ("held_out_before", "held_out", "held_out_shared")
    told = result.to_json()
    return {
        "role": role,
        "base_model": base_model,
        "adapter": adapter,
        "training": asdict(settings),
        "data": data,
        "started_from": started_from,
        "result": {
            "steps": result.steps,
            "tokens": result.tokens,
            "targets": result.targets,
            "seconds": round(result.seconds, 1),
            "loss_first_20_steps": round(result.first_loss, 4),
            "loss_last_20_steps": round(result.last_loss, 4),
            **{name: told[name] for name in held_out},
        },
        "versions": {
            "python": platform.python_version(),
            **{name: _version(name) for name in ("agentrt", "torch", "transformers", "peft")},
        },
    }


def write_card(folder: Path, card: dict[str, Any]) -> None:
    """Write `card.json` beside the adapter, and a README.md that tells the same to people."""
    (folder / CARD_FILE).write_text(json.dumps(card, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    (folder / README_FILE).write_text(adapter_readme(card), encoding="utf-8")


def read_card(folder: Path) -> dict[str, Any]:
    """How an adapter came to be, as far as its card tells: what `started_from` quotes; empty without a card.

    Raises UsageError for a card that is not a JSON object.
    """
    path = folder / CARD_FILE
    if not path.is_file():
        return {}
    try:
        card = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UsageError(f"{path}: not JSON ({error}); copy it again, or take it out") from None
    if not isinstance(card, dict):
        raise UsageError(f"{path}: no card of an adapter; copy it again, or take it out")
    return {key: card[key] for key in ("training", "result", "started_from") if card.get(key) is not None}


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:  # run from a checkout that was never installed
        return "not installed"
