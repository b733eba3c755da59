"""What is in a question's image, as somebody recorded it once: a caption and the words that stand in it."""

import ast
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

from agentrt_tools.base import Json, ToolResult
from agentrt_tools.corpus_file import CorpusError
from agentrt_tools.options import DataFile, Style
from agentrt_tools.text import one_line

NO_IMAGE: Final = "This question doesn't have an image."
_EXPECTED: Final = 'one JSON object a line, {"question": "…", "choices": ["…"], "caption": "…", "ocr": "…"}'


class _Image(NamedTuple):
    caption: str
    ocr: str


class RecordedImages:
    """The recorded caption and text of the episode's image, whatever the argument says (AutoAct's Image2Text).

    `captions` is a file of ScienceQA's questions with `caption` and `ocr`. An image is found by its question, context
    and options as they are posed, with the caption in the context or without. Nothing tells rows apart that agree in
    all three: the first counts.
    """

    name: Final = "scienceqa.image"

    def __init__(self, *, captions: Annotated[str, DataFile()], style: Style = "react") -> None:
        self._images = _read(Path(captions))
        self._style = style

    def __call__(self, argument: str, state: Mapping[str, Json], *, question: str = "") -> ToolResult:
        image = self._images.get(one_line(question))
        if image is None:
            return ToolResult(NO_IMAGE, {"image": False}, dict(state), miss=True)
        facts: dict[str, Json] = {"image": True, "caption": image.caption, "ocr": image.ocr}
        if self._style == "autoact":
            text = one_line(f"Image caption: {image.caption} OCR result: {image.ocr}".replace("\n", ""))
        else:
            words = _words(image.ocr)
            text = one_line(f"Image: {image.caption}" + (f" Text in it: {'; '.join(words)}" if words else ""))
        return ToolResult(text, facts, dict(state))


def posed(question: str, hint: str, choices: list[str]) -> str:
    """A question as an episode is asked it, on one line."""
    options = " ".join(f"({chr(ord('A') + index)}) {choice}" for index, choice in enumerate(choices))
    context = f"Context: {hint} " if hint.strip() else ""
    return one_line(f"{question} {context}Options: {options}")


def _read(path: Path) -> dict[str, _Image]:
    """Raises CorpusError with file:line and the fix."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise CorpusError(f"{path}: cannot read the captions: {error}") from error
    images: dict[str, _Image] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row: Any = json.loads(line)
            image = _Image(str(row.get("caption") or ""), str(row.get("ocr") or ""))
            hints = [row.get("hint") or "", f"{row.get('hint') or ''} Image: {image.caption}"]
            keys = [posed(row["question"], hint, row["choices"]) for hint in hints]
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise CorpusError(f"{path}:{number}: {type(error).__name__}: {error}; expected {_EXPECTED}") from error
        if image.caption:  # a file may hold questions without an image too
            images |= {key: image for key in keys if key not in images}
    if not images:
        raise CorpusError(f"{path}:1: the file holds no image; expected {_EXPECTED}")
    return images


def _words(ocr: str) -> list[str]:
    """The words of a recorded OCR: a Python list of (box, word, certainty), or the text as it is."""
    try:
        found = ast.literal_eval(ocr) if ocr.startswith("[") else None
        return [str(word) for _, word, _ in found] if found is not None else [ocr] if ocr else []
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return [ocr]
