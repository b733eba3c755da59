"""The studies' figures show what the result files say, and only what was measured."""

import json
from pathlib import Path

import pytest

from benchmarks.studies.figures import Bar, boundaries, by_training, divergences, main, scores

STUDY = {
    "rows": {
        "hotpotqa non_shared": {"questions": 100, "metrics": {"em": 0.3, "f1": 0.4}, "ci95": {"em": [0.2, 0.4]}},
        "hotpotqa rebase_shared": {"questions": 100, "metrics": {"em": 0.1, "f1": 0.2}, "ci95": {"em": [0.0, 0.2]}},
        "scienceqa non_shared": {"questions": 50, "metrics": {"accuracy": 0.5}, "ci95": {"accuracy": [0.4, 0.6]}},
        "hotpotqa compared": {"event": "compared"},
    }
}
DRIFT = {
    "schemes": [
        {
            "scheme": "pre_lr_shared",
            "kl": {"mean": 0.02, "ci95": [0.01, 0.03]},
            "by_role": {"plan": {"mean": 0.01, "ci95": None}},
        }
    ]
}


RANKS = {"rows": {"r4 drift": DRIFT, "r4 non_shared": STUDY["rows"]["hotpotqa non_shared"]}}
BOUNDARY = {
    "config": {"budgets": [16, 64]},
    "rows": {
        "700 tokens": {
            "n": 10,
            "conditions": {
                f"{condition}, {speaker}, {budget} tokens": {
                    "n": 10,
                    "f1_minus_native": {"mean": -0.01 * budget, "ci95": [-1.0, 0.5]},
                }
                for condition, speaker in (("native", "seed0"), ("full", "seed0"), ("full", "seed1"))
                for budget in (16, 64)
            }
            | {"base_only, adapters off, 64 tokens": {"n": 10}},
        },
        "8000 tokens": {
            "n": 3,
            "conditions": {"full, seed0, 64 tokens": {"n": 3, "f1_minus_native": {"mean": 0.0, "ci95": [0.0, 0.0]}}},
        },
        "9000 tokens": {"left_out": "the backbone has 8192 positions"},
    },
}


def test_every_measured_scheme_is_a_bar_of_its_benchmark() -> None:
    assert scores(STUDY) == {
        "hotpotqa, em, n = 100": [Bar("non_shared", 0.3, 0.2, 0.4), Bar("rebase_shared", 0.1, 0.0, 0.2)],
        "scienceqa, accuracy, n = 50": [Bar("non_shared", 0.5, 0.4, 0.6)],
    }


def test_divergences_are_by_role_and_one_trajectory_has_no_interval() -> None:
    assert divergences(DRIFT) == {
        "KL, all roles": [Bar("pre_lr_shared", 0.02, 0.01, 0.03)],
        "KL, plan": [Bar("pre_lr_shared", 0.01, 0.01, 0.01)],
    }


def test_trained_teams_have_a_panel_each() -> None:
    assert by_training(RANKS) == {"KL, r4": [Bar("pre_lr_shared", 0.02, 0.01, 0.03)]}
    assert scores(RANKS) == {"r4, em, n = 100": [Bar("non_shared", 0.3, 0.2, 0.4)]}


def test_boundaries_are_apart_from_native_at_the_larger_budget() -> None:
    assert boundaries(BOUNDARY) == {
        f"F1 - native, 700 tokens, {seed}, n = 10": [Bar("full", -0.64, -1.0, 0.5)] for seed in ("seed0", "seed1")
    }


def test_a_figure_is_drawn_for_each_kind_of_result(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    results = {"drift-x": DRIFT, "study-boundary": BOUNDARY, "study-ranks": RANKS, "study-schemes-x": STUDY}
    for name, content in {**results, "soak": {}}.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    main(["--results", str(tmp_path), "--out", str(tmp_path / "figures")])
    drawn = [tmp_path / "figures" / f"{name}.svg" for name in results]
    assert capsys.readouterr().out.split() == list(map(str, drawn))
    assert all(file.read_text().startswith("<?xml") for file in drawn)
