"""`agentrt resume`, on a tiny model in a folder: after a signal, as a fork, and to verify a run."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agentrt.builtin import configs_dir
from agentrt.model.tiny import tiny_model, tiny_tokenizer
from tests.crew import ROLES

MAIN = [
    sys.executable,
    "-c",
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "from agentrt.cli.main import main; main()",
]
"""The program as a terminal starts it: where the tests run in the background, SIGINT is ignored from the start on."""


@pytest.fixture
def tiny(tmp_path: Path) -> list[str]:
    """Arguments that run a short episode of one benchmark question on a tiny model."""
    tiny_model(vocab_size=259, layers=2, max_position_embeddings=4096).save_pretrained(tmp_path / "tiny")
    (tmp_path / "tiny" / "tokenizer.json").write_text(tiny_tokenizer().specification(), "utf-8")
    team = [f"--set=roles.{role}.adapter=none" for role in ROLES]
    team += [f"--set=roles.{role}.sampling.temperature=1.0" for role in ROLES]
    team += [f"--set=roles.{role}.sampling.max_new_tokens=300" for role in ROLES]
    limits = ["--set=limits.max_steps=2", "--set=limits.max_observation_tokens=40"]
    team.append("--set=flow.nodes.argue.constrain.Search={span_of: question}")  # so that tools are called
    model = [f"--set=base.model={tmp_path / 'tiny'}", "--set=base.dtype=float32"]
    return [
        "run",
        "--benchmark",
        "mini",
        "--json",
        "--seed",
        "4",
        "--record",
        str(tmp_path / "tape"),
        *team,
        *limits,
        *model,
    ]


def token_ids(folder: Path) -> list[int]:
    result = json.loads((folder / "result.json").read_text())
    return [token_id for span in result["spans"] for token_id in span["token_ids"]]


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), pytest.param(signal.SIGINT, 130, marks=pytest.mark.slow)]
)
def test_a_signal_leaves_a_run_that_can_go_on(
    cli: Any, tiny: list[str], tmp_path: Path, number: signal.Signals, code: int
) -> None:
    with subprocess.Popen(
        [*MAIN, *tiny, "--stream"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        next(line for line in process.stdout if '"event":"token","turn":4' in line)
        process.send_signal(number)
        rest, stderr = process.communicate(timeout=180)
    assert process.returncode == code, stderr
    (folder,) = (tmp_path / "runs").iterdir()
    assert f"interrupted: run {folder.name}" in stderr
    assert f"agentrt resume runs/{folder.name}" in stderr
    result = json.loads((folder / "result.json").read_text())
    assert result["status"] == "cancelled"
    told = [json.loads(line) for line in rest.splitlines()]
    assert [event["event"] for event in told].count("run_finished") == 1
    assert {name: result[name] for name in ("status", "answer", "run_id", "timing")}.items() <= told[-1].items()

    resumed = cli("resume", folder.name, "--json")
    last = json.loads(resumed.stdout.splitlines()[-1])
    assert json.loads(resumed.stdout.splitlines()[0])["event"] == "run_resumed"
    assert (last["event"], last["run_id"], last["seed"]) == ("run_finished", folder.name, 4)
    assert last["score"]["id"]
    assert resumed.exit_code == (0 if last["status"] == "finished" else 3)

    again = cli("resume", folder.name)
    assert again.exit_code == 2
    assert "has ended" in again.stderr

    verified = cli("resume", folder.name, "--verify", "--json")
    assert verified.exit_code == 0, verified.stderr
    told = json.loads(verified.stdout.splitlines()[-1])
    assert (told["event"], told["identical"], told["tokens"]) == ("verify_finished", True, len(token_ids(folder)))

    forked = cli("resume", str(folder), "--at-turn", "3", "--scheme", "full_shared", "--json")
    made = json.loads(forked.stdout.splitlines()[-1])
    assert made["run_id"] != folder.name
    assert made["scheme"] == "full_shared"
    assert token_ids(folder.parent / made["run_id"])[:30] == token_ids(folder)[:30]


def test_verify_names_the_first_token_that_differs(cli: Any, tiny: list[str], tmp_path: Path) -> None:
    assert cli(*tiny).exit_code in (0, 3)
    (folder,) = (tmp_path / "runs").iterdir()
    result = json.loads((folder / "result.json").read_text())
    span = next(span for span in result["spans"] if span["path"] is not None)
    at = sum(len(each["token_ids"]) for each in result["spans"][: result["spans"].index(span)])
    span["token_ids"][0] += 1
    (folder / "result.json").write_text(json.dumps(result))
    verified = cli("resume", folder.name, "--verify")
    assert verified.exit_code == 1
    assert f"differs from token {at} on" in verified.stdout


def test_a_resumed_run_takes_what_the_machine_decides_and_a_copy_of_its_corpus(
    cli: Any, tiny: list[str], tmp_path: Path
) -> None:
    short = [f"--set=roles.{role}.sampling.max_new_tokens=4" for role in ROLES]
    corpus, copy, other = (tmp_path / name for name in ("pages.jsonl", "copy.jsonl", "other.jsonl"))
    pages = (configs_dir() / "mini" / "articles.jsonl").read_text().splitlines(keepends=True)
    corpus.write_text("".join(pages[:9]))
    assert cli(*tiny, *short, "--corpus", "pages.jsonl").exit_code in (0, 3)
    (folder,) = (tmp_path / "runs").iterdir()
    corpus.rename(copy)
    other.write_text("".join(pages[:8]))
    (tmp_path / "agentrt.yaml").write_text("seed: 9\nteam: science\nscheme: non_shared\ncorpus: other.jsonl\n")

    lost = cli("resume", folder.name, "--at-turn", "2")
    assert lost.exit_code == 2
    assert f"the run's corpus {corpus} is not there: name a copy of it with --set corpus=FILE" in lost.stderr
    refused = cli("resume", folder.name, "--at-turn", "2", "--set", "corpus=other.jsonl")
    assert refused.exit_code == 2
    assert f"other.jsonl is not what run {folder.name} read: name a copy of {corpus}" in refused.stderr

    sets = ("corpus=copy.jsonl", "backend=reference", "scheme=full_shared")
    forked = cli("resume", folder.name, "--at-turn", "2", "--json", *(f"--set={each}" for each in sets))
    made = json.loads(forked.stdout.splitlines()[-1])
    assert (made["scheme"], made["seed"]) == ("full_shared", 4)
    header = json.loads((folder.parent / made["run_id"] / "events.jsonl").read_text().splitlines()[0])
    assert (header["resources"]["corpus"], header["resources"]["backend"]) == (str(copy), "reference")


def test_a_scheme_that_a_fork_cannot_have_is_refused_at_its_flag(cli: Any, tiny: list[str], tmp_path: Path) -> None:
    short = [f"--set=roles.{role}.sampling.max_new_tokens=4" for role in ROLES]
    assert cli(*tiny, *short).exit_code in (0, 3)
    (folder,) = (tmp_path / "runs").iterdir()
    result = cli("resume", folder.name, "--at-turn", "2", "--scheme", "rebase_shared:never")
    assert result.exit_code == 2
    assert "--scheme: rebase_shared: unknown schedule 'never'" in result.stderr


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("absent",), "there is no run absent"),
        (
            ("absent", "--scheme", "full_shared"),
            "--scheme: a run goes on under its own scheme; fork it with --at-turn N",
        ),
        (("absent", "--set", "scheme=full_shared"), "--set scheme=full_shared: a run goes on under its own scheme"),
        (("absent", "--set", "seed=3"), "--set seed=3: a run keeps its seed"),
        (("absent", "--at-turn", "2", "--set", "team=science"), "--set team=science: a run keeps its team"),
        (("absent", "--verify", "--at-turn", "2"), "leave --at-turn out"),
    ],
)
def test_what_makes_no_sense_is_refused(cli: Any, args: tuple[str, ...], says: str) -> None:
    result = cli("resume", *args)
    assert result.exit_code == 2
    assert says in result.stderr
