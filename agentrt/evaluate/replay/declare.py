"""What a result says about how it came about. Names no host and no person."""

import os
import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

import torch

from agentrt.cache.layout import Layout
from agentrt.evaluate.replay.formulas import bytes_per_token
from agentrt.model.adapters import AdapterSet
from agentrt.model.backbone import Backbone
from agentrt.model.cachedir import file_sha256
from agentrt.schemes import Scheme
from agentrt.schemes.selective import Selective

RATIO_COUNTS: Final = "tokens that others wrote since the agent last acted, rounded down; new tokens are no part of it"

_PACKAGES: Final = ("agentrt", "torch", "transformers", "peft", "triton")


def maps_sha256(scheme: Scheme) -> str | None:
    """Of the scheme's file of fitted maps, whose name says nothing of its content; None without one."""
    return file_sha256(Path(scheme.maps_file)) if scheme.maps_file else None


def declare(scheme: Scheme, backbone: Backbone, adapters: AdapterSet) -> dict[str, Any]:
    """Scheme and options, cache layout, content hashes, dtypes and kernels, as plain JSON types."""
    layout = backbone.layout(adapters)
    options = scheme.options()
    if scheme.maps_file is not None:
        options["maps"] = Path(scheme.maps_file).name
    return {
        "options": options,
        "maps_sha256": maps_sha256(scheme),
        "lp_at": options.get("lp_at"),
        "ratio_counts": RATIO_COUNTS if "ratio" in options else None,
        "repaired_layers": _repaired_layers(scheme, layout),
        "lr_dtype": str(layout.lr_dtype).removeprefix("torch."),
        "layout": {
            "unit": "one slot a token and plane; segments that double, never moved",
            "bytes_per_token": bytes_per_token(scheme, layout),
        },
        "backbone": backbone.names[0],
        "backbone_hash": backbone.content_hash,
        "adapters": {
            name: {
                "hash": adapters.hashes[name],
                "value_rank": adapters.ranks[name],
                "key_rank": adapters.key_ranks[name],
            }
            for name in adapters.names
        },
        "dtype": str(backbone.dtype).removeprefix("torch."),
        "backend": backbone.backend,
    }


def _repaired_layers(scheme: Scheme, layout: Layout) -> dict[str, list[int]] | None:
    """By plane, for the selective schemes."""
    if not isinstance(scheme, Selective):
        return None
    return {plane: list(layers) for plane, layers in scheme.plane_layers(layout).repaired.items()}


def describe_machine(device: torch.device) -> dict[str, Any]:
    """Processor or GPU, threads and package versions."""
    return {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else _processor(),
        "threads": torch.get_num_threads(),
        "processors": os.cpu_count(),
        "python": platform.python_version(),
        "versions": _versions(),
    }


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.is_file() else []
    facts: Mapping[str, str] = {
        key.strip(): value.strip() for key, colon, value in (line.partition(":") for line in lines) if colon
    }
    name = facts.get("model name") or platform.processor() or platform.machine()
    return f"{name}, AMX bf16" if "amx_bf16" in facts.get("flags", "") else name


def _versions() -> dict[str, str]:
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
