"""Comparisons: pairs by question and repeat, differences with their intervals, flips, and refusals by name."""

import json
from collections.abc import Iterable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agentrt.errors import DataError, UsageError
from agentrt.evaluate.compare.result import compare, to_record
from agentrt.evaluate.compare.runs import load_runs
from agentrt.evaluate.evaluation.folder import ROWS, EvalFolder
from agentrt.evaluate.evaluation.row import EpisodeRow
from agentrt.questions.datasets import load_questions

from .rows import costly, row

MINI = tuple(load_questions("mini"))
SCIENCE = tuple(load_questions("mini-science"))


def write(folder: Path, scheme: str, rows: Iterable[EpisodeRow], **identity: Any) -> str:
    """An evaluation in `folder`, named by its scheme."""
    with closing(EvalFolder.create(folder / scheme, {"benchmark": "mini", "scheme": scheme, **identity})) as made:
        for each in rows:
            made.add(each)
    return scheme


def answered(right: Iterable[bool], repeat: int = 0, **costs: Any) -> list[EpisodeRow]:
    return [
        costly(row(question, question.answer if is_right else "nonsense", repeat=repeat), **costs)
        for question, is_right in zip(MINI, right, strict=False)
    ]


def test_differences_are_paired_by_question_whatever_the_order(tmp_path: Path) -> None:
    ours = [True, True, False, False, True, False, True, False]
    theirs = [True, False, False, True, True, True, True, True]
    names = [
        write(tmp_path, "a", answered(ours, tokens=100, steps=3)),
        write(tmp_path, "b", reversed(answered(theirs, tokens=90, steps=4, turns_s=1.0))),
    ]
    record = to_record(compare(load_runs(names, tmp_path)))
    assert (record["reference"], record["questions"], record["episodes"], record["resamples"]) == ("a", 8, 8, 10_000)
    (found,) = record["comparisons"]
    em = found["differences"]["em"]
    assert (em["reference"], em["other"], em["difference"], em["questions"]) == (0.5, 0.75, 0.25, 8)
    each = np.array(theirs, float) - np.array(ours, float)
    rng = np.random.default_rng(9)
    means = [float(rng.choice(each, len(each)).mean()) for _ in range(10_000)]
    assert em["ci95"] == pytest.approx(np.quantile(means, (0.025, 0.975)), abs=0.13)  # a step of the mean is 0.125
    assert em["told_apart"] is False
    tokens = found["differences"]["trajectory_tokens"]
    assert (tokens["difference"], tokens["ci95"], tokens["told_apart"]) == (-10.0, [-10.0, -10.0], True)
    assert found["differences"]["steps"]["difference"] == 1.0
    assert found["differences"]["model_latency_s"]["difference"] == -2.0
    assert (found["gained"], found["lost"]) == (3, 1)
    flipped = [index for index in range(8) if ours[index] != theirs[index]]
    assert [flip["id"] for flip in found["flips"]] == sorted(MINI[index].id for index in flipped)
    assert record == to_record(compare(load_runs(names, tmp_path))), "seeded"


def test_an_interval_is_of_pairs_not_of_two_samples(tmp_path: Path) -> None:
    varied = [costly(row(each, "x"), tokens=100 + 50 * index) for index, each in enumerate(MINI[:12])]
    shorter = [costly(row(each, "x"), tokens=93 + 50 * index) for index, each in enumerate(MINI[:12])]
    names = [write(tmp_path, "a", varied), write(tmp_path, "b", shorter)]
    (found,) = to_record(compare(load_runs(names, tmp_path)))["comparisons"]
    tokens = found["differences"]["trajectory_tokens"]
    assert (tokens["difference"], tokens["ci95"]) == (-7.0, [-7.0, -7.0]), "two samples vary by hundreds"


def test_repeats_of_a_question_are_averaged_first(tmp_path: Path) -> None:
    ours = [*answered([True] * 4), *answered([False] * 4, repeat=1)]
    theirs = [*answered([True] * 4), *answered([False, False, True, True], repeat=1)]
    names = [write(tmp_path, "a", ours), write(tmp_path, "b", theirs)]
    (found,) = to_record(compare(load_runs(names, tmp_path)))["comparisons"]
    assert found["differences"]["em"]["questions"] == 4
    assert found["differences"]["em"]["difference"] == 0.25
    assert [(flip["reference"], flip["other"]) for flip in found["flips"]] == [(0.5, 1.0)] * 2


def test_letters_are_compared_by_accuracy(tmp_path: Path) -> None:
    rows = [costly(row(question, "A")) for question in SCIENCE[:4]]
    right = [costly(row(question, question.letter)) for question in SCIENCE[:4]]
    names = [write(tmp_path, "a", rows), write(tmp_path, "b", right)]
    (found,) = to_record(compare(load_runs(names, tmp_path)))["comparisons"]
    assert "em" not in found["differences"]
    assert found["differences"]["accuracy"]["other"] == 1.0


def test_an_episode_that_broke_is_wrong_and_costs_nothing_that_is_known(tmp_path: Path) -> None:
    broken = [row(MINI[0], None, "failed"), *answered([True] * 3)[1:]]
    names = [write(tmp_path, "a", answered([True] * 3)), write(tmp_path, "b", broken)]
    (found,) = to_record(compare(load_runs(names, tmp_path)))["comparisons"]
    assert found["differences"]["em"]["questions"] == 3
    assert found["differences"]["steps"]["questions"] == 2


def test_what_else_differs_is_said_and_schemes_of_one_name_are_told_apart(tmp_path: Path) -> None:
    for name, seed in (("one", 1), ("two", 2)):
        identity = {"scheme": "s", "seed": seed, "dtype": "float32"}
        with closing(EvalFolder.create(tmp_path / name, identity, {"concurrency": seed, "threads": 2})) as made:
            made.add(row(MINI[0], "x"))
    found = compare(load_runs(["one", str(tmp_path / "two")], tmp_path))
    assert found.differing == {"seed": [1, 2], "concurrency": [1, 2]}
    assert [run.label for run in found.runs] == ["s (one)", "s (two)"]


def test_a_torn_last_line_is_a_missing_episode(tmp_path: Path) -> None:
    names = [write(tmp_path, name, answered([True] * 3)) for name in ("a", "b")]
    file = tmp_path / "b" / ROWS
    file.write_text(file.read_text()[:-40])
    with pytest.raises(UsageError, match=rf"b \(b\) lacks questions {MINI[2].id} that another has.*--resume b"):
        compare(load_runs(names, tmp_path))
    assert len(compare(load_runs(names, tmp_path), common=True).keys) == 2


def test_runs_over_other_questions_are_refused_by_name(tmp_path: Path) -> None:
    write(tmp_path, "a", answered([True] * 6))
    write(tmp_path, "b", answered([True] * 2))
    write(tmp_path, "c", [row(question, "x") for question in MINI[6:8]])
    write(tmp_path, "d", [*answered([True] * 2), *answered([True], repeat=1)])
    write(tmp_path, "e", [row(replace(MINI[0], answer="another gold"), "x")])
    with pytest.raises(UsageError, match=r"lacks questions .* and 1 more that another has"):
        compare(load_runs(["a", "b"], tmp_path))
    with pytest.raises(UsageError, match="a and c have no question in common"):
        compare(load_runs(["a", "c"], tmp_path), common=True)
    with pytest.raises(UsageError, match=rf"b \(b\) lacks repeats {MINI[0].id}#1 that another has"):
        compare(load_runs(["d", "b"], tmp_path))
    with pytest.raises(DataError, match=rf"{MINI[0].id} is not the same in a and e"):
        compare(load_runs(["a", "e"], tmp_path), common=True)


def test_what_is_no_finished_evaluation_is_refused_by_name(tmp_path: Path) -> None:
    write(tmp_path, "a", answered([True] * 2))
    write(tmp_path, "empty", [])
    write(tmp_path, "twice", [*answered([True]), *answered([True])])
    write(tmp_path, "bad", [])
    (tmp_path / "bad" / ROWS).write_text('{"id": 3}\n')
    write(tmp_path, "header", answered([True]))
    (tmp_path / "header" / "eval.json").write_text("{")
    for other, kind, says in (
        ("absent", UsageError, "absent is no evaluation"),
        ("empty", UsageError, "empty has no finished episode yet"),
        ("twice", DataError, rf"episodes\.jsonl:2: question {MINI[0].id}, repeat 0 for the second time"),
        ("bad", DataError, r"episodes\.jsonl:1: not a row"),
        ("header", DataError, r"eval\.json: not JSON"),
        ("a", UsageError, "evaluation a is named twice"),
    ):
        with pytest.raises(kind, match=says):
            load_runs(["a", other], tmp_path)
    with pytest.raises(UsageError, match="at least two"):
        load_runs(["a"], tmp_path)


def test_the_record_is_json(tmp_path: Path) -> None:
    names = [write(tmp_path, name, answered([True])) for name in ("a", "b")]
    record = to_record(compare(load_runs(names, tmp_path)))
    assert json.loads(json.dumps(record)) == record
    assert record["comparisons"][0]["differences"]["em"]["ci95"] is None, "one question has no interval"
