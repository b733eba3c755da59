"""Roles are trained at once in processes of their own, those that read another's contexts after it, and failures stay
where they happened."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from agentrt.errors import AdapterError, AgentrtError, UsageError
from agentrt.model.tiny import tiny_model, tiny_tokenizer
from agentrt.model.trainable import LoraSettings
from agentrt.training.examples import Recorded, RecordedSpan, write_recorded
from agentrt.training.job import FACTS, TRAJECTORIES
from agentrt.training.parallel import Outcome, train_all
from agentrt.training.role import RoleJob
from agentrt.training.settings import SHARED_CONTEXTS, TrainSettings

SETTINGS = TrainSettings(passes=1.5, learning_rate=1e-2, warmup_steps=2, held_out=0.2, seed=5)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model") / "tiny"
    tiny_model(vocab_size=259, layers=2).save_pretrained(folder)
    (folder / "tokenizer.json").write_text(tiny_tokenizer().specification(), "utf-8")
    return folder


def write_data(out: Path, count: int = 10) -> None:
    """plan writes 7 8 9 behind any question, and action 5."""
    spans = (
        RecordedSpan(0, 6, "user", "question"),
        RecordedSpan(6, 9, "plan", "thought"),
        RecordedSpan(9, 10, "action", "argument"),
    )
    made = [
        Recorded(f"q{n}", f"q{n}", (*((n * k + k) % 50 + 20 for k in range(6)), 7, 8, 9, 5), spans)
        for n in range(count)
    ]
    (out / "data").mkdir(parents=True)
    write_recorded(out / "data" / TRAJECTORIES, made)
    (out / "data" / FACTS).write_text("{}")


def jobs(model: Path, out: Path, *roles: str) -> list[RoleJob]:
    lora = LoraSettings(rank=4, alpha=8)
    one = RoleJob("", str(model), out, out / "adapters", lora, SETTINGS, dtype="float32", threads=1)
    return [
        replace(
            one,
            role=role,
            other="plan" if role != "plan" else None,
            settings=replace(SETTINGS, contexts=SHARED_CONTEXTS) if role != "plan" else SETTINGS,
        )
        for role in roles
    ]


def names(outcomes: Sequence[Outcome]) -> dict[str, str]:
    return {outcome.job.role: type(outcome.error).__name__ for outcome in outcomes}


def test_processes_of_their_own_train_what_one_process_trains(model: Path, tmp_path: Path) -> None:
    seen: list[str] = []
    ended: list[str] = []
    for name, at_once in (("here", 1), ("apart", 2)):
        write_data(tmp_path / name)
        outcomes = train_all(
            jobs(model, tmp_path / name, "plan", "action"),
            at_once,
            report=lambda role, facts: seen.append(role),
            ended=lambda outcome: ended.append(outcome.job.role),
        )
        assert names(outcomes) == {"plan": "NoneType", "action": "NoneType"}
    assert ended == ["plan", "action"] * 2, "action reads what plan leaves behind"
    steps = len(seen) // 2
    assert seen[:steps] == seen[steps:]
    for role in ("plan", "action"):
        here, apart = (
            load_file(tmp_path / name / "adapters" / role / "adapter_model.safetensors") for name in ("here", "apart")
        )
        assert all(torch.equal(here[name], apart[name]) for name in here)


def test_a_failure_stops_those_that_wait_for_it_and_nobody_else(model: Path, tmp_path: Path) -> None:
    write_data(tmp_path)
    plan, action, alone = jobs(model, tmp_path, "plan", "action", "plan")
    alone = replace(alone, role="action", adapters=tmp_path / "others")
    plan = replace(plan, start=tmp_path / "absent")
    outcomes = train_all([plan, replace(action, role="reflect"), alone], 1)
    assert names(outcomes) == {"plan": AdapterError.__name__, "reflect": UsageError.__name__, "action": "NoneType"}
    assert "it reads what plan leaves behind" in str(outcomes[1].error)
    assert not (tmp_path / "adapters").exists()


def test_an_error_comes_back_from_another_process_as_what_it_was(model: Path, tmp_path: Path) -> None:
    write_data(tmp_path)
    [plan] = jobs(model, tmp_path, "plan")
    [outcome] = train_all([replace(plan, start=tmp_path / "absent")], 2)
    assert isinstance(outcome.error, AdapterError)
    assert "is not an adapter to train on from" in str(outcome.error)


def test_a_process_that_dies_is_told_of(model: Path, tmp_path: Path) -> None:
    write_data(tmp_path)
    long = [replace(job, settings=replace(SETTINGS, passes=1e5)) for job in jobs(model, tmp_path, "plan")]
    killed: list[int] = []

    def kill(role: str, facts: object) -> None:
        if not killed:
            killed.append(child_of(os.getpid()))
            os.kill(killed[0], signal.SIGKILL)

    [outcome] = train_all(long, 2, report=kill)
    assert isinstance(outcome.error, AgentrtError)
    assert "its process ended with code -9; --resume goes on" in str(outcome.error)
    assert not (tmp_path / "adapters").exists()


def test_an_interrupt_ends_the_processes(model: Path, tmp_path: Path) -> None:
    write_data(tmp_path)
    long = [replace(job, settings=replace(SETTINGS, passes=1e5)) for job in jobs(model, tmp_path, "plan")]
    children: list[int] = []

    def interrupt(role: str, facts: object) -> None:
        children.append(child_of(os.getpid()))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_all(long, 2, report=interrupt)
    assert not Path(f"/proc/{children[0]}").exists()


def test_a_worker_ends_when_nobody_listens(model: Path, tmp_path: Path) -> None:
    write_data(tmp_path)
    [job] = [replace(job, settings=replace(SETTINGS, passes=1e5)) for job in jobs(model, tmp_path, "plan")]
    command = [sys.executable, "-m", "agentrt.training.worker"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    worker = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
    assert worker.stdin is not None
    assert worker.stdout is not None
    with worker:
        worker.stdin.write(job.to_json())
        worker.stdin.close()
        assert worker.stdout.readline().startswith('{"step"')
        worker.stdout.close()
        assert worker.wait(60) == 1


def child_of(parent: int) -> int:
    """The one worker that `parent` has started."""
    listed = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    [child] = [pid for pid in listed if b"agentrt.training.worker" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    return int(child)
