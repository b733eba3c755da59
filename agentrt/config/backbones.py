"""Names of backbones: short aliases, and whether two names mean the same model. Knows nothing of loading one."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

DEFAULT_BACKBONE: Final = "smollm2-135m"

ALIASES: Final[Mapping[str, str]] = {
    "smollm2-135m": "HuggingFaceTB/SmolLM2-135M-Instruct",
}
"""Alias -> hub id."""


def hub_id(name: str) -> str:
    """The hub id of an alias; any other name stays as it is."""
    return ALIASES.get(name.lower(), name)


def can_be_fetched(name: str) -> bool:
    """Whether a name is an alias, or has the form of a hub id."""
    return name.lower() in ALIASES or (not _is_path(name) and name.count("/") == 1)


def surely_differ(one: str, other: str) -> bool:
    """Whether two names are certainly different models. Paths may hold anything, so they never surely differ."""
    if _is_path(one) or _is_path(other):
        return False
    return hub_id(one).lower() != hub_id(other).lower()


def _is_path(name: str) -> bool:
    return name.startswith(("/", ".", "~")) or name.endswith(".gguf") or Path(name).exists()
