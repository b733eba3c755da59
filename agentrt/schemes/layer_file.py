"""The file in which measured layer sets are kept. It belongs to one backbone and its adapters, by content hash."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from agentrt.errors import SchemeError

KIND: Final = "layers"
SUFFIX: Final = ".json"
"""A value of the option `layers` that ends so names such a file."""


def write_layer_file(
    file: Path,
    layers: Mapping[str, str],
    *,
    backbone_hash: str,
    adapter_hashes: Mapping[str, str],
    facts: Mapping[str, Any],
) -> None:
    """`layers`: by scheme, as the option is written; `facts`: how they were found, for people."""
    head = {"kind": KIND, "backbone": backbone_hash, "adapters": dict(adapter_hashes), "layers": dict(layers)}
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({**head, **facts}, indent=1) + "\n", encoding="utf-8")


def read_layers(file: str, scheme: str, *, backbone_hash: str, adapter_hashes: Mapping[str, str]) -> str:
    """The layers of `scheme`. Raises SchemeError for a file that cannot be read, lacks the scheme, or was measured on
    another backbone or with other adapters."""
    fix = "run `agentrt profile`"
    try:
        stored: Any = json.loads(Path(file).read_text(encoding="utf-8"))
        kind, backbone, adapters, layers = (stored[key] for key in ("kind", "backbone", "adapters", "layers"))
        known = set(adapters.values())
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise SchemeError(f"{scheme}: {file} is no file of measured layers ({error!r}); {fix} to make one") from None
    if kind != KIND or backbone != backbone_hash:
        raise SchemeError(f"{scheme}: the layers in {file} were measured on another backbone; {fix} for this one")
    if other := [name for name, content in adapter_hashes.items() if content not in known]:
        raise SchemeError(
            f"{scheme}: the layers in {file} were not measured with adapter {other[0]!r} as it is now; {fix} for these "
            "adapters"
        )
    if scheme not in layers:
        measured = ", ".join(layers) or "none"
        raise SchemeError(f"{scheme}: {file} has no layers for it (it has: {measured}); {fix} --schemes {scheme}")
    return str(layers[scheme])
