"""Runs that go on after an interruption: the same tokens, whatever the scheme and wherever they were left."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from agentrt.runtime.episode import Runtime
from agentrt.runtime.result import EpisodeResult
from agentrt.runtime.runlog import RESULT_FILE
from tests.crew import CORPUS, short_team, tiny_engine
from tests.kills import DEATHS, QUESTION, SEED, Deadly
from tests.watched import Moment, Watched

SCHEMES = [
    *("non_shared", "full_shared", "base_shared", "base_lr_shared", "pre_lr_shared", "own_kv", "alora", "ridge"),
    *("rebase_shared:lp", "rebase_shared:db", "rebase_shared:fused", "rebase_shared:auto"),
    *("droidspeak:layers=1", "droidspeak_scattered:layers=0", "cacheblend", "relay_caching:layers=0-1"),
    *("neutral_prefix:early", "neutral_prefix:full,schedule=auto"),
]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_from_turn_boundaries_the_tokens_are_those_of_the_whole_run(tmp_path: Path, scheme: str) -> None:
    left: list[Path] = []
    runs, short = tmp_path / "runs", short_team(max_steps=2)

    def leave(moment: Moment) -> None:
        """What a process that dies here leaves behind."""
        if moment.what == "turn" and moment.turn % 3 == 2:
            left.append(Path(shutil.copytree(runs / "whole", tmp_path / f"left{len(left)}")))

    with (
        tiny_engine(tmp_path / "weights", scheme) as engine,
        Runtime(
            short_team(max_steps=2), engine=Watched(engine, leave), corpus=CORPUS, out=tmp_path / "runs", seed=3
        ) as rt,
    ):
        whole = rt.run(QUESTION, run_id="whole")
    assert len(left) >= 2
    with (
        tiny_engine(tmp_path / "weights", scheme) as engine,
        Runtime(short, engine=engine, corpus=CORPUS) as rt,
    ):
        for folder in left:
            again = rt.resume(folder)
            assert again.token_ids == whole.token_ids, folder.name
            assert (again.status, again.actions) == (whole.status, whole.actions)
            assert json.loads((folder / RESULT_FILE).read_text())["status"] == whole.status
        engine.check_integrity()


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """See tests/kills.py."""
    folder = tmp_path_factory.mktemp("killed")
    subprocess.run([sys.executable, "-m", "tests.kills", str(folder), *SCHEMES], check=True, timeout=240)
    return folder


@pytest.mark.parametrize("scheme", SCHEMES)
def test_after_kill_9_the_tokens_are_those_of_the_whole_run(killed: Path, scheme: str) -> None:
    runs = killed / scheme / "runs"
    whole = EpisodeResult.model_validate_json((runs / "whole" / RESULT_FILE).read_text())
    tools = {name: Deadly(f"deadly.{name}") for name in ("Search", "Retrieve", "Lookup")}
    with (
        tiny_engine(killed / scheme / "weights", scheme) as engine,
        Runtime(short_team(), engine=engine, tools=tools, out=runs) as rt,
    ):
        for run_id in DEATHS:
            assert not (runs / run_id / RESULT_FILE).exists()
            again = rt.resume(run_id)
            assert again.token_ids == whole.token_ids, run_id
            assert (again.seed, again.status, again.actions) == (SEED, whole.status, whole.actions)
