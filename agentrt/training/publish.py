"""A folder that is there whole or not at all. Knows nothing of what is in it."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def published(folder: Path) -> Iterator[Path]:
    """An empty folder to fill, which takes the place of `folder` when the block ends without an error.

    It lies beside `folder` under a name that begins with a dot. After a kill, at any point, either the folder before
    or the new one is there, or the next call puts the one before back.
    """
    draft, before = folder.with_name(f".{folder.name}.draft"), folder.with_name(f".{folder.name}.before")
    folder.parent.mkdir(parents=True, exist_ok=True)
    if before.exists() and not folder.exists():
        os.replace(before, folder)
    for leftover in (draft, before):
        shutil.rmtree(leftover, ignore_errors=True)
    draft.mkdir()
    try:
        yield draft
        if folder.exists():  # a folder that holds files cannot be replaced in one step
            os.replace(folder, before)
        os.replace(draft, folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
        if folder.exists():
            shutil.rmtree(before, ignore_errors=True)
