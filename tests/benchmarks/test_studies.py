"""Every study runs whole on a tiny model, says where its rows come from, and goes on where it was stopped."""

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from agentrt.errors import UsageError
from benchmarks.studies import boundary, drift, harness, ranks, rebase, schemes
from benchmarks.studies.harness import CONFIGS

Start = Callable[[Sequence[str]], None]

STUDIES: dict[str, tuple[Start, list[str]]] = {
    "schemes": (
        schemes.start,
        [
            f"{benchmark} {row}"
            for benchmark in ("mini", "mini-science")
            for row in ("adapters off", "non_shared", "pre_lr_shared", "compared")
        ],
    ),
    "rebase": (rebase.start, ["variants", "lr 0.001", "lr 0.001 training"]),
    "ranks": (ranks.start, ["r2 drift", "r2 training", "r2 non_shared", "r2 pre_lr_shared"]),
    "boundary": (boundary.start, ["1600 tokens", "9000 tokens"]),
    "drift": (drift.start, ["mini"]),
}


def run(name: str, folder: Path) -> dict[str, Any]:
    STUDIES[name][0](["--smoke", "--work", str(folder / "work"), "--out", str(folder / "out.json")])
    found: dict[str, Any] = json.loads((folder / "out.json").read_text())
    return found


@pytest.mark.parametrize(
    "name", [name if name == "schemes" else pytest.param(name, marks=pytest.mark.slow) for name in STUDIES]
)
def test_a_study_runs_whole_and_goes_on(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = run(name, tmp_path)
    assert (found["study"], list(found["rows"])) == (name, STUDIES[name][1])
    for row in found["rows"].values():
        assert set(row["origin"]) >= {"cpu", "threads", "versions", "commit"}
    first, *others = found["rows"]
    stored = {**found, "rows": {key: found["rows"][key] for key in others}}
    (tmp_path / "out.json").write_text(json.dumps(stored))
    again = run(name, tmp_path)["rows"]
    assert {key: again[key] for key in others} == stored["rows"], "what was there is kept as it was"
    assert first in again
    shutil.rmtree(tmp_path / "work")
    assert run(name, tmp_path)["rows"] == again, "a whole study needs nothing of its work"


def test_a_row_says_who_began_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(harness, "describe", lambda: {"commit": "old"})
        patched.setattr(harness.Study, "drift", killed)
        with pytest.raises(KeyboardInterrupt):
            run("drift", tmp_path)
    monkeypatch.setattr(harness, "describe", lambda: {"commit": "new"})
    monkeypatch.setattr(harness.Study, "drift", lambda *_: {"event": "drift"})
    row = run("drift", tmp_path)["rows"]["mini"]
    assert (row["origin"], row["begun"]) == ({"commit": "new"}, {"commit": "old"})


def test_an_adapter_trained_under_another_config_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boundary, "sweep", lambda *_: {})
    run("boundary", tmp_path)
    note = tmp_path / "work" / "seed0" / "made_of.json"
    note.write_text(note.read_text().replace('"passes": 0.5', '"passes": 5.0'))
    (tmp_path / "out.json").unlink()
    with pytest.raises(UsageError, match="seed0: its adapter was trained under another config; name another --work"):
        run("boundary", tmp_path)


def test_the_boundary_sweep_has_its_controls(tmp_path: Path) -> None:
    rows = run("boundary", tmp_path)["rows"]
    assert "positions" in rows["9000 tokens"]["left_out"]
    row = rows["1600 tokens"]
    found = row["conditions"]
    speakers = [(name, "seed0") for name in ("native", "own_kv", "early", "question", "full")]
    assert {
        f"{name}, {who}, {n} tokens" for name, who in [*speakers, ("base_only", "adapters off")] for n in (3, 5)
    } < set(found)
    for seed in ("seed0", "seed1"):
        assert found[f"own_kv, {seed}, 5 tokens"]["same_answers_as_native"] == 1.0
    assert found["native, seed0, 3 tokens"]["cap_hit_share"] >= found["native, seed0, 5 tokens"]["cap_hit_share"]
    memory = row["two_branch_memory"]
    assert memory["native"]["shared_share"] == 0.0
    assert memory["question"]["shared_share"] > 0.4
    assert memory["question"]["held_bytes"] < memory["native"]["held_bytes"]


def test_every_study_has_both_configs() -> None:
    assert {file.name for file in CONFIGS.iterdir()} == {f"{n}{s}.yaml" for n in STUDIES for s in ("", ".smoke")}


def test_results_of_another_config_are_not_mixed_in(tmp_path: Path) -> None:
    (tmp_path / "out.json").write_text('{"study": "drift", "config": {}, "rows": {}}')
    with pytest.raises(UsageError, match="another study or config"):
        run("drift", tmp_path)


def test_a_smoke_run_writes_nothing_among_the_results(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        drift.start(["--smoke"])
    assert "name a file with --out" in capsys.readouterr().err
