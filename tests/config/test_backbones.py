"""Names of backbones, compared without loading any."""

from pathlib import Path

import pytest

from agentrt.config.backbones import ALIASES, DEFAULT_BACKBONE, hub_id, surely_differ


def test_the_default_is_an_alias_in_any_case() -> None:
    assert hub_id(DEFAULT_BACKBONE.upper()) == ALIASES[DEFAULT_BACKBONE]


@pytest.mark.parametrize(
    ("one", "other", "differ"),
    [
        ("smollm2-135m", "HuggingFaceTB/SmolLM2-135M-Instruct", False),
        ("huggingfacetb/smollm2-135m-instruct", "HuggingFaceTB/SmolLM2-135M-Instruct", False),
        ("smollm2-135m", "Qwen/Qwen3-0.6B", True),
        ("smollm2-135m", "/models/anything", False),
        ("smollm2-135m", "./anything", False),
        ("smollm2-135m", "anything.gguf", False),
    ],
)
def test_only_names_that_cannot_be_one_model_differ(one: str, other: str, differ: bool) -> None:
    assert surely_differ(one, other) is differ
    assert surely_differ(other, one) is differ


def test_a_folder_that_exists_may_be_any_model(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    assert not surely_differ(str(tmp_path / "x"), "smollm2-135m")


def test_other_names_stay() -> None:
    assert hub_id("a/b") == "a/b"
