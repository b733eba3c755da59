"""`agentrt compare`, on evaluations that nobody played."""

import json
from pathlib import Path
from typing import Any

import pytest

from agentrt.evaluate.evaluation.folder import EvalFolder
from agentrt.questions.datasets import load_questions
from tests.evaluate.rows import costly, row

MINI = tuple(load_questions("mini"))


@pytest.fixture
def runs(tmp_path: Path) -> list[str]:
    """Two evaluations under runs/: the second has 25 questions more right."""
    for name, count in (("non_shared", 5), ("full_shared", 30)):
        folder = EvalFolder.create(tmp_path / "runs" / name, {"scheme": name})
        for index, question in enumerate(MINI):
            folder.add(costly(row(question, question.answer if index < count else "x")))
    return ["non_shared", "full_shared"]


def test_people_get_a_table_and_the_first_flips(cli: Any, runs: list[str]) -> None:
    assert len(MINI) >= 30
    result = cli("compare", *runs)
    assert result.exit_code == 0, result.stderr
    assert f"{len(MINI)} questions" in result.stdout
    assert "full_shared against non_shared" in result.stdout
    (em,) = [line for line in result.stdout.splitlines() if line.startswith("em ")]
    assert em.rstrip().endswith("*")
    assert "25 questions flipped: 25 gained, 0 lost" in result.stdout
    assert "and 5 more: -v lists them" in result.stdout
    assert cli("compare", *runs, "-v").stdout.count("  + ") == 25


def test_json_is_one_object_and_the_figure_is_drawn(cli: Any, runs: list[str], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    result = cli("compare", *runs, "--json", "--plot", "figures", "--seed", "3")
    assert result.exit_code == 0, result.stderr
    (line,) = [json.loads(line) for line in result.stdout.splitlines()]
    assert (line["event"], line["reference"], line["seed"]) == ("compared", "non_shared", 3)
    assert len(line["comparisons"][0]["flips"]) == 25
    assert (tmp_path / "figures" / "compare.png").is_file()


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("non_shared",), "at least two"),
        (("non_shared", "absent"), "runs/absent is no evaluation"),
    ],
)
def test_what_cannot_be_compared_says_why(cli: Any, runs: list[str], args: tuple[str, ...], says: str) -> None:
    result = cli("compare", *args)
    assert result.exit_code == 2
    assert says in result.stderr
