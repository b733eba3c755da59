"""From a file of episodes to adapters that answer: tiny model, tiny data, one command.

The loss falls, each role's fields come out of the served team, and they are token for token what training learnt.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from agentrt.config.team import Team
from agentrt.model.load import load_model
from agentrt.model.tiny import tiny_model, tiny_tokenizer
from agentrt.model.trainable import LoraSettings, TrainableAdapter
from agentrt.runtime.episode import Runtime
from agentrt.runtime.result import EpisodeResult
from agentrt.testing import FakeTool
from agentrt.training.examples import role_example
from agentrt.training.job import load_data

ROLES = ("plan", "action", "reflect")

TEAM = """
version: 1
base: {model: tiny, dtype: float32}
scheme: {name: non_shared}
dialect: {question: "Q:", thought: "T:", action: "A:", observation: "O:"}
roles:
  plan: {adapter: adapters/plan, sampling: {max_new_tokens: 8}}
  action: {adapter: adapters/action, sampling: {max_new_tokens: 8}}
  reflect: {adapter: adapters/reflect, sampling: {max_new_tokens: 8}}
tools: {Search: {use: offline.search}}
flow:
  start: think
  nodes:
    think: {role: plan, emits: thought, next: decide}
    decide: {role: plan, emits: action, choices: [Search, Finish], next: argue}
    argue: {role: action, emits: argument, next: {Finish: judge, default: use_tool}}
    use_tool: {tool: true, next: think}
    judge: {role: reflect, emits: thought, next: verdict}
    verdict: {role: reflect, emits: verdict, choices: [right, wrong], next: {right: end, wrong: think}}
limits: {max_steps: 4}
"""
FOUND = "pal"
WORDS = ("go", "Search", "cat", "ok", "Finish", "pal", "yes", "right")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A team of a tiny model, and eight episodes in which it does the same about eight questions."""
    folder = tmp_path_factory.mktemp("whole")
    tiny_model(vocab_size=259, layers=2).save_pretrained(folder / "tiny")
    (folder / "tiny" / "tokenizer.json").write_text(tiny_tokenizer().specification(), "utf-8")
    (folder / "team.yaml").write_text(TEAM.replace("model: tiny", f"model: {folder / 'tiny'}"))
    thought, search, argument, second, finish, answer, judgement, verdict = WORDS
    turns = [
        {"role": "plan", "thought": thought, "action": search},
        {"role": "action", "action": search, "action_input": argument, "observation": FOUND},
        {"role": "plan", "thought": second, "action": finish},
        {"role": "action", "action": finish, "action_input": answer},
        {"role": "reflect", "thought": judgement, "action": "Reflect", "action_input": verdict},
    ]
    rows = [{"id": letter, "question": f"{letter}?", "turns": turns} for letter in "abcdefgh"]
    (folder / "episodes.jsonl").write_text("".join(json.dumps(row) + "\n" for row in [*rows, {"id": "bad"}]))
    return folder


def run(home: Path, question: str) -> EpisodeResult:
    with Runtime(home / "team.yaml", tools={"Search": FakeTool("Search", {WORDS[2]: FOUND})}) as runtime:
        return runtime.run(question)


def test_a_team_is_trained_and_answers_as_it_was_taught(cli: Any, home: Path) -> None:
    command = [
        *("train", "--team", str(home / "team.yaml"), "--trajectories", str(home / "episodes.jsonl")),
        *("--out", str(home / "run"), "--adapters", str(home / "adapters"), "--jobs", "1", "--json"),
        *("--targets", "QKVO", "--rank", "16", "--lr", "0.02", "--warmup", "4", "--batch", "4", "--passes", "40"),
    ]
    trained = cli(*command)
    assert trained.exit_code == 0, trained.stderr
    data, *roles, end = map(json.loads, trained.stdout.splitlines())
    assert (data["trajectories"], data["skipped"]) == (8, {"its question cannot be used": 1})
    assert [event["role"] for event in roles] == end["roles"] == list(ROLES)
    for role in ROLES:
        log = [json.loads(line) for line in (home / "run" / role / "log.jsonl").read_text().splitlines()]
        assert log[-1]["loss"] < 0.1 * log[0]["loss"]

    result = run(home, "z?")
    written = tuple(span.text.strip(" \n]") for span in result.spans if span.path is not None)
    assert (result.status, written) == ("finished", WORDS)

    kept = cli(*command, "--resume")
    assert kept.exit_code == 0, kept.stderr
    assert [*map(json.loads, kept.stdout.splitlines())] == [data, *roles, end], "nothing was left to do"


@pytest.mark.parametrize("role", ROLES)
def test_what_is_served_is_what_was_trained(home: Path, role: str) -> None:
    """Greedy fields of the engine, against the training code's own logits over the recorded episode."""
    team = Team.load(home / "team.yaml")
    loaded = load_model(team.base.model, dtype="float32")
    lora = LoraSettings(16, 32, tuple(f"{letter}_proj" for letter in "qkvo"))
    learner = TrainableAdapter(loaded.model, loaded.name, lora, start=team.adapters()[role])
    recorded = load_data(home / "run")[0][0]
    example = role_example(recorded, role)
    assert example is not None
    with torch.no_grad():
        logits = learner.logits(torch.tensor([example.token_ids]), torch.tensor(example.targets) - 1)
    served = [span for span in run(home, "a?").spans if span.path == role]
    assert [len(span.token_ids) for span in served] == [field.end - field.start for field in example.fields]
    assert [token_id for span in served for token_id in span.token_ids] == logits.argmax(-1).tolist()


def test_quiet_draws_no_bar(cli: Any, home: Path) -> None:
    command = ["train", "--team", str(home / "team.yaml"), "--trajectories", str(home / "episodes.jsonl")]
    told = [
        cli(*command, "--derive-only", *flags, env={"FORCE_COLOR": "1"})
        for flags in (("--out=loud",), ("--out=q", "-q"))
    ]
    assert [each.exit_code for each in told] == [0, 0]
    assert told[0].stderr.count("\x1b[?25l") == 2  # where bars are drawn, the cursor goes
    assert (told[1].stdout, told[1].stderr) == ("", "")
