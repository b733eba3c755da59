"""Files that grow by whole lines, and may have been torn by a crash while the last one was written."""

import os
from pathlib import Path


def replace_file(path: Path, text: str) -> None:
    """Put the whole file in its place in one step."""
    draft = path.with_name(f"{path.name}.draft")
    draft.write_text(text, encoding="utf-8")
    os.replace(draft, path)


def append_line(path: Path, line: str) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(line + "\n")


def read_lines(path: Path, *, drop_torn: bool = False) -> list[str]:
    """The whole lines. `drop_torn`: what stands behind them is cut off in the file, so that it can grow again.

    Raises FileNotFoundError.
    """
    text = path.read_text(encoding="utf-8", errors="replace")
    whole = text[: text.rfind("\n") + 1]
    if drop_torn and whole != text:
        replace_file(path, whole)
    return whole.split("\n")[:-1]
