"""Folders built once and kept in the user's cache, and hashes of files that need not be computed twice.

Knows files, locks and checksums; nothing of models.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from filelock import FileLock

MANIFEST: Final = "agentrt.json"
"""Written last, into every folder that `build_once` made: where it is from, and the size of each file."""


def cache_root() -> Path:
    """Where models and hashes are kept: `AGENTRT_CACHE`, else the user's cache folder for agentrt."""
    if chosen := os.environ.get("AGENTRT_CACHE"):
        return Path(chosen)
    import platformdirs  # benchmarks.gpu runs where only the model's libraries are

    return Path(platformdirs.user_cache_dir("agentrt", appauthor=False))


def is_complete(folder: Path) -> bool:
    """True where `build_once` finished `folder` and every file still has the size it had then."""
    try:
        sizes: dict[str, int] = json.loads((folder / MANIFEST).read_text("utf-8"))["bytes"]
        return all((folder / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def build_once(folder: Path, build: Callable[[Path], None], *, source: str) -> Path:
    """Return `folder`, filled by `build(empty folder)` if it is not there or was damaged.

    Other processes wait for the one that builds. A build that fails or is killed leaves nothing behind that a
    later call could take for the folder: the work happens in a temporary sibling that is renamed at the end.
    `source` is recorded in the manifest. Errors of `build` pass through.
    """
    if is_complete(folder):
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.parent / f".{folder.name}.lock"):
        if is_complete(folder):
            return folder
        temporary_name = f".{folder.name}.tmp-"
        for leftover in folder.parent.glob(f"{temporary_name}*"):  # of a killed process: we hold the lock
            shutil.rmtree(leftover, ignore_errors=True)
        temporary = folder.parent / f"{temporary_name}{os.getpid()}"
        temporary.mkdir()
        try:
            build(temporary)
            sizes = {
                path.relative_to(temporary).as_posix(): path.stat().st_size
                for path in sorted(temporary.rglob("*"))
                if path.is_file()
            }
            (temporary / MANIFEST).write_text(json.dumps({"source": source, "bytes": sizes}, indent=1), "utf-8")
            if folder.exists():
                shutil.rmtree(folder)
            os.replace(temporary, folder)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    return folder


def hash_once(kind: str, files: Iterable[Path], compute: Callable[[], str]) -> str:
    """`compute()`, remembered for as long as none of `files` changes path, size or modification time.

    A cache folder that cannot be written only means that the value is computed again next time.
    """
    facts = [kind]
    for path in sorted(files):
        real = path.resolve()
        status = real.stat()
        facts.append(f"{real}\0{status.st_size}\0{status.st_mtime_ns}")
    key = hashlib.sha256("\n".join(facts).encode()).hexdigest()
    memory = cache_root() / "hashes" / key
    try:
        value = memory.read_text("ascii")
        if len(value) == 64:
            return value
    except (OSError, ValueError):
        pass
    value = compute()
    try:
        memory.parent.mkdir(parents=True, exist_ok=True)
        temporary = memory.with_name(f"{key}.tmp-{os.getpid()}")
        temporary.write_text(value, "ascii")
        os.replace(temporary, memory)
    except OSError:
        pass
    return value


def file_sha256(path: Path) -> str:
    """SHA-256 of a file's bytes, in hex; remembered."""

    def compute() -> str:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    return hash_once("sha256", [path], compute)
