"""Recorded captions in place of images."""

import json
from pathlib import Path
from typing import Any

import pytest

from agentrt.questions.question import pose_choice
from agentrt_tools import CorpusError, RecordedImages, open_tool

OCR = "[([[9, 83], [31, 83]], 'N', 0.99), ([[157, 81], [177, 81]], 'S pole', 0.79)]"
ROW = {
    "question": "Will they attract?",
    "choices": ["yes", "no"],
    "hint": "Two magnets.",
    "caption": "A kite.",
    "ocr": OCR,
}


def images(folder: Path, *rows: Any, **options: Any) -> RecordedImages:
    (folder / "images.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return RecordedImages(captions=str(folder / "images.jsonl"), **options)


@pytest.mark.parametrize(
    ("style", "text"),
    [
        ("react", "Image: A kite. Text in it: N; S pole"),
        ("autoact", f"Image caption: A kite. OCR result: {OCR}"),
    ],
)
@pytest.mark.parametrize("caption", ["", "A kite."])
def test_the_image_of_the_posed_question_is_told(tmp_path: Path, style: str, text: str, caption: str) -> None:
    question = pose_choice(ROW["question"], ROW["choices"], ROW["hint"], caption)  # type: ignore[arg-type]  # mixed values
    result = images(tmp_path, ROW, style=style)("image", {"mine": 1}, question=question)
    assert (result.text, result.miss, result.state) == (text, False, {"mine": 1})
    assert result.facts == {"image": True, "caption": "A kite.", "ocr": OCR}


@pytest.mark.parametrize(
    ("ocr", "text"), [("[]", "Image: A kite."), ("", "Image: A kite."), ("[bad", "Image: A kite. Text in it: [bad")]
)
def test_an_image_without_words_has_a_caption_only(tmp_path: Path, ocr: str, text: str) -> None:
    question = pose_choice("Q?", ["a", "b"])
    row = {"question": "Q?", "choices": ["a", "b"], "caption": "A kite.", "ocr": ocr}
    assert images(tmp_path, row)("", {}, question=question).text == text


def test_a_question_without_an_image_is_told_so(tmp_path: Path) -> None:
    plain = {"question": "Q?", "choices": ["a", "b"], "caption": ""}
    result = images(tmp_path, ROW, plain)("image", {}, question=pose_choice("Q?", ["a", "b"]))
    assert (result.text, result.miss) == ("This question doesn't have an image.", True)


def test_every_recorded_image_is_found_by_its_question(shared_data: Path) -> None:
    file = shared_data / "scienceqa" / "eval_image_captioned.jsonl"
    tool = open_tool("scienceqa.image", {"captions": file.name}, root=file.parent)
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    own = 0
    for row in rows:
        result = tool("image", {}, question=pose_choice(row["question"], row["choices"], row["hint"]))
        assert not result.miss
        assert "\n" not in result.text
        own += result.facts["caption"] == row["caption"]
    assert (len(rows), own) == (127, 125)  # two pairs share question, context and options


def test_no_text_only_question_has_an_image(shared_data: Path) -> None:
    tool = RecordedImages(captions=str(shared_data / "scienceqa" / "eval_image_captioned.jsonl"))
    rows = [json.loads(line) for line in (shared_data / "scienceqa" / "eval.jsonl").read_text("utf-8").splitlines()]
    assert len(rows) == 233
    assert all(tool("", {}, question=pose_choice(row["question"], row["choices"], row["hint"])).miss for row in rows)


@pytest.mark.parametrize(
    ("text", "says"), [("x\n", "images.jsonl:1"), ('{"question": 1}\n', "images.jsonl:1"), ("", "no image")]
)
def test_a_file_that_holds_no_images_is_named(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "images.jsonl").write_text(text)
    with pytest.raises(CorpusError, match=says):
        RecordedImages(captions=str(tmp_path / "images.jsonl"))
    with pytest.raises(CorpusError, match="cannot read"):
        RecordedImages(captions=str(tmp_path / "absent.jsonl"))
