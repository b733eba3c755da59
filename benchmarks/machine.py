"""What a result declares about where it was measured; names no host and no person."""

import platform
import subprocess
from importlib.metadata import version
from pathlib import Path

import torch


def describe() -> dict[str, object]:
    """Processor, threads, versions and commit, as plain JSON types."""
    return {
        "cpu": _cpu_name(),
        "threads": torch.get_num_threads(),
        "cuda": torch.cuda.get_device_name(0) if torch.cuda.is_available() else None,
        "python": platform.python_version(),
        "versions": {name: version(name) for name in ("torch", "transformers", "peft")},
        "commit": _commit(),
    }


def _cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    if not info.is_file():
        return platform.processor()
    lines = info.read_text(encoding="utf-8").splitlines()
    name = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")
    flags = next((line for line in lines if line.startswith("flags")), "")
    return f"{name}{', AMX bf16' if 'amx_bf16' in flags else ''}"


def _commit() -> str:
    root = Path(__file__).parent
    asked = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=root, capture_output=True, text=True, check=False
    )
    return asked.stdout.strip() or "unknown"
