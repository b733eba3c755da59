"""`agentrt run`: what is refused before a model is loaded, and a run with the real one."""

import json
from pathlib import Path
from typing import Any

import pytest

from agentrt.errors import BackboneError
from agentrt.model.fetch import locate
from tests.cli.tiny_team import tiny_team

NO_ADAPTERS = [f"--set=roles.{role}.adapter=none" for role in ("plan", "action", "reflect")]


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        ((), 2, "give either a question or --benchmark"),
        (("Who?", "--benchmark", "mini"), 2, "give either a question or --benchmark"),
        (("--benchmark", "minni"), 2, "unknown benchmark 'minni'"),
        (("--benchmark", "mini", "--index", "9999"), 2, "--index 9999: mini has"),
        (("--benchmark", "mini", "--split", "tset"), 2, "no question of split 'tset'"),
        (("--benchmark", "hotpotqa"), 2, "--data FILE"),
        (("Who?", "--team", "serach"), 2, "did you mean 'search'?"),
        (("Who?", "--scheme", "pre_lr_shard", *NO_ADAPTERS), 2, "did you mean 'pre_lr_shared'?"),
        (("Who?", "--scheme", "pre_lr_shared:tail=3", *NO_ADAPTERS), 2, "no option 'tail'"),
        (("Who?", "--set", "limits.max_steps=none", *NO_ADAPTERS), 2, "whole number"),
        (("Who?", "--set", "roles.plan.adapter=nowhere"), 2, "no adapter folder"),
        (("Who?", "--set", "roles.plan.adapter=nowhere"), 2, "`agentrt train --derive --team search`"),
        (("Who?", "--adapters", "nowhere"), 2, "--adapters nowhere: no adapter folder"),
        (("Who?", "--corpus", "absent.jsonl", *NO_ADAPTERS), 2, "absent.jsonl"),
        (("Who?", "--set", "base.model=no-such", *NO_ADAPTERS), 5, "there is no model 'no-such'"),
        ((" ", *NO_ADAPTERS), 2, "the question is empty"),
    ],
)
def test_a_run_that_cannot_start_says_why(cli: Any, args: tuple[str, ...], code: int, says: str) -> None:
    result = cli("run", "--offline", *args)
    assert says in result.stderr
    assert result.exit_code == code


def test_a_corpus_that_is_not_jsonl_is_named_with_its_line(cli: Any, tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_text("not json\n")
    result = cli("run", "Who?", "--corpus", "bad.jsonl", *NO_ADAPTERS)
    assert result.exit_code == 2
    assert "bad.jsonl:1" in result.stderr


def test_hotpotqa_needs_a_corpus_of_its_own(cli: Any, tmp_path: Path) -> None:
    (tmp_path / "q.jsonl").write_text('{"id": "a", "question": "Who?", "answer": "She"}\n')
    result = cli("run", "--benchmark", "hotpotqa", "--data", "q.jsonl", *NO_ADAPTERS)
    assert result.exit_code == 2
    assert "--corpus" in result.stderr


ROW = {
    "id": "x",
    "question": "Which one?",
    "choices": ["an egg", "a fig", "an ant", "a cup", "a hat"],
    "answer": "E",
    "grade": 2,
    "lecture": "",
    "solution": "",
}


def test_the_science_team_answers_with_a_letter_of_the_question_and_needs_no_corpus(cli: Any, tmp_path: Path) -> None:
    base = tiny_team(tmp_path)[:2]
    (tmp_path / "q.jsonl").write_text(json.dumps(ROW) + "\n")
    short = [f"--set=roles.{role}.sampling.max_new_tokens=8" for role in ("plan", "action", "reflect")]
    limits = ["--set=limits.max_steps=1", "--set=limits.on_limit=force_answer", "--set=base.dtype=float32"]
    asked = ["--benchmark", "scienceqa", "--data", "q.jsonl", "--index", "0", "--adapters", str(tmp_path)]
    result = cli("run", "--team", "science", *base, *short, *limits, *asked, "--json")
    assert result.exit_code == 0, result.stderr
    last = json.loads(result.stdout.splitlines()[-1])
    assert last["event"] == "run_finished"
    assert last["answer"] in tuple("ABCDE")
    assert last["score"]["correct"] is (last["answer"] == "E")
    assert 0 < last["confidence"] <= 1


@pytest.mark.real_model
@pytest.mark.parametrize("scheme", ["pre_lr_shared", "rebase_shared:lp"])
def test_a_run_of_the_shipped_team_ends_with_run_finished(cli: Any, tmp_path: Path, scheme: str) -> None:
    try:
        locate("smollm2-135m", offline=True)
    except BackboneError:
        pytest.skip("the default backbone was never fetched: agentrt models fetch smollm2-135m")
    args = ("--benchmark", "mini", "--scheme", scheme, "--set", "limits.max_steps=2", "--out", "runs")
    result = cli("run", "--offline", "--json", *args)
    last = json.loads(result.stdout.splitlines()[-1])
    assert last["event"] == "run_finished"
    assert (last["scheme"], last["seed"]) == (scheme, 0)
    assert result.exit_code == (0 if last["status"] == "finished" else 3)
    assert last["usage"]["plan"]["kv_bytes"] > 0
    folder = tmp_path / "runs" / last["run_id"]
    assert json.loads((folder / "result.json").read_text())["run_id"] == last["run_id"]
    assert (folder / "events.jsonl").read_text().splitlines()[-1] == result.stdout.splitlines()[-1]
