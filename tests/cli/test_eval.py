"""`agentrt eval`, on a tiny model in a folder."""

import json
from pathlib import Path
from typing import Any

import pytest

from agentrt.evaluate.evaluation import job
from agentrt.evaluate.evaluation.folder import read_rows
from agentrt.model.tiny import tiny_model, tiny_tokenizer
from tests.cli.tiny_team import tiny_team

NO_ADAPTERS = [f"--set=roles.{role}.adapter=none" for role in ("plan", "action", "reflect")]


@pytest.fixture
def tiny(tmp_path: Path) -> list[str]:
    """Arguments that evaluate short episodes on a tiny model."""
    tiny_model(vocab_size=259, layers=2, max_position_embeddings=4096).save_pretrained(tmp_path / "tiny")
    (tmp_path / "tiny" / "tokenizer.json").write_text(tiny_tokenizer().specification(), "utf-8")
    short = [f"--set=roles.{role}.sampling.max_new_tokens=6" for role in ("plan", "action", "reflect")]
    limits = ["--set=limits.max_steps=2", "--set=limits.max_observation_tokens=40"]
    return ["eval", *NO_ADAPTERS, *short, *limits, f"--set=base.model={tmp_path / 'tiny'}", "--set=base.dtype=float32"]


def test_json_has_a_row_for_each_episode_and_ends_with_the_summary(cli: Any, tiny: list[str], tmp_path: Path) -> None:
    result = cli(*tiny, "--limit", "3", "--repeats", "2", "--concurrency", "3", "--json", "--seed", "5")
    assert result.exit_code == 0, result.stderr
    *rows, last = (json.loads(line) for line in result.stdout.splitlines())
    assert [row["event"] for row in rows] == ["episode_finished"] * 6
    assert last["event"] == "eval_finished"
    assert set(last) >= {"benchmark", "scheme", "n", "metrics", "by_group", "ci95", "tool_health", "run_id", "seed"}
    assert (last["benchmark"], last["scheme"], last["n"], last["seed"]) == ("mini", "pre_lr_shared", 6, 5)
    assert "6 episodes of 3 questions" in result.stderr
    assert "standard deviation over repeats: em" in result.stderr
    assert last["per_episode"]["trajectory_tokens"]["max"] > 0
    assert "per episode: TTFT" in result.stderr
    folder = tmp_path / "runs" / last["run_id"]
    assert {row.key for row in read_rows(folder)} == {(row["id"], row["repeat"]) for row in rows}
    summary = json.loads((folder / "summary.json").read_text())
    assert {key: summary[key] for key in last} == last
    assert summary["identity"]["questions"] == 3
    assert summary["declared"]["dtype"] == "float32"


def test_concurrency_changes_no_episode(cli: Any, tiny: list[str]) -> None:
    found = []
    for concurrency in ("1", "4"):
        result = cli(*tiny, "--benchmark", "mini", "--limit", "6", "--concurrency", concurrency, "--json")
        assert result.exit_code == 0, result.stderr
        *rows, _ = (json.loads(line) for line in result.stdout.splitlines())
        for row in rows:
            told = row["result"]
            told["usage"] = {role: (use["turns"], use["generated_tokens"]) for role, use in told["usage"].items()}
            if found and told["confidence"] is not None:  # packed otherwise, in fp32
                told["confidence"] = pytest.approx(told["confidence"], abs=1e-4)
            del told["run_id"], told["timing"]
        found.append({(row["id"], row["repeat"]): row for row in rows})
    assert len(found[0]) == 6
    assert found[0] == found[1]


def test_an_interrupted_evaluation_names_its_id_and_goes_on(
    cli: Any, tiny: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    played = job._play

    def interrupted(runtime: Any, episode: Any, token: Any) -> Any:
        if episode.question.id.endswith("03"):
            raise KeyboardInterrupt
        return played(runtime, episode, token)

    monkeypatch.setattr(job, "_play", interrupted)
    result = cli(*tiny, "--limit", "4", "--concurrency", "1")
    assert result.exit_code == 130
    (folder,) = (tmp_path / "runs").iterdir()
    assert f"2 episodes are in runs/{folder.name}; the same command with --resume {folder.name}" in result.stderr
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    resumed = cli(*tiny, "--limit", "4", "--concurrency", "2", "--resume", folder.name, "--json")
    assert resumed.exit_code == 0, resumed.stderr
    assert len(resumed.stdout.splitlines()) == 2 + 1
    assert len(read_rows(folder)) == 4
    (tmp_path / "c.jsonl").write_text('{"title": "Bonn", "sentences": ["Bonn lies on the Rhine."]}\n')
    for changed in (["--limit", "3"], ["--limit", "4", "--corpus", "c.jsonl"]):
        other = cli(*tiny, *changed, "--resume", folder.name)
        assert other.exit_code == 2
        assert "resume with the same options" in other.stderr


def test_episodes_that_ran_out_of_time_side_by_side_are_pointed_out(cli: Any, tiny: list[str], tmp_path: Path) -> None:
    short = [*tiny, "--limit", "2", "--set=limits.time_s=0.001"]
    together, alone = (cli(*short, "--concurrency", str(number)) for number in (2, 1))
    assert "2 limit:time" in together.stdout
    assert "ran into limits.time_s: try --concurrency 1" in together.stdout
    assert "2 limit:time" in alone.stdout
    assert "limits.time_s" not in alone.stdout
    headers = [json.loads(file.read_text()) for file in (tmp_path / "runs").glob("*/eval.json")]
    assert sorted(header["concurrency"] for header in headers) == [1, 2]


def test_a_sampling_preset_replaces_what_the_roles_say(cli: Any, tiny: list[str], tmp_path: Path) -> None:
    rows = {}
    for preset in ("greedy", "lragent"):
        result = cli(*tiny, "--limit", "1", "--repeats", "2", "--sampling", preset, "--json")
        assert result.exit_code == 0, result.stderr
        rows[preset] = [json.loads(line) for line in result.stdout.splitlines()[:2]]
    greedy, drawn = (
        [[span["token_ids"] for span in row["result"]["spans"]] for row in found] for found in rows.values()
    )
    assert greedy[0] == greedy[1]
    assert drawn[0] != drawn[1]


def test_people_get_a_table_by_grade_band_and_the_guessing_baseline(cli: Any, tiny: list[str]) -> None:
    letters = "--set=flow.nodes.argue.constrain.Finish={span_of: question}"
    result = cli(*tiny, "--benchmark", "mini-science", "--split", "all", "--limit", "6", letters)
    assert result.exit_code == 0, result.stderr
    assert "accuracy" in result.stdout
    assert "always answering" in result.stdout


def test_the_science_team_is_scored_by_letters(cli: Any, tmp_path: Path) -> None:
    base = tiny_team(tmp_path)[:2]
    short = [f"--set=roles.{role}.sampling.max_new_tokens=8" for role in ("plan", "action", "reflect")]
    limits = ["--set=limits.max_steps=2", "--set=limits.on_limit=force_answer", "--set=base.dtype=float32"]
    asked = ["--benchmark", "mini-science", "--split", "eval", "--limit", "4", "--adapters", str(tmp_path)]
    result = cli("eval", "--team", "science", *base, *short, *limits, *asked, "--json")
    assert result.exit_code == 0, result.stderr
    *rows, last = (json.loads(line) for line in result.stdout.splitlines())
    assert [row["prediction"] in tuple("ABCD") for row in rows] == [True] * 4
    assert last["metrics"]["accuracy"] == sum(row["prediction"] == row["letter"] for row in rows) / 4


def test_more_broken_episodes_than_allowed_end_with_6(cli: Any, tiny: list[str]) -> None:
    small = "--kv-budget=16t"
    result = cli(*tiny, "--limit", "2", small, "--json")
    assert result.exit_code == 6, result.stderr
    last = json.loads(result.stdout.splitlines()[-1])
    assert (last["failed"], last["status"]) == (2, {"failed": 2})
    assert cli(*tiny, "--limit", "2", small, "--max-failed", "1").exit_code == 0


def test_a_key_that_is_refused_ends_with_4(cli: Any, tiny: list[str], tmp_path: Path) -> None:
    """No such episode is broken: each ends by its limit of steps."""
    words = "--set=flow.nodes.argue.constrain.Lookup={span_of: question}"
    asked = [*tiny, "--set=limits.max_steps=1", words, "--limit", "3"]
    assert cli(*asked, "--record", "tape").exit_code == 0
    tape = tmp_path / "tape" / "calls.jsonl"
    calls = [json.loads(line) for line in tape.read_text().splitlines()]
    assert calls
    refused = {"failure": {"kind": "auth", "message": "the key is refused", "hint": "", "told": ""}}
    tape.write_text("".join(json.dumps({**call, "outcome": refused}) + "\n" for call in calls))
    result = cli(*asked, "--cassette", "tape", "--json")
    last = json.loads(result.stdout.splitlines()[-1])
    assert (last["failed"], last["tool_health"]["failures"]) == (0, {"auth": len(calls)})
    assert result.exit_code == 4


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (("--benchmark", "minni"), 2, "unknown benchmark 'minni'"),
        (("--benchmark", "hotpotqa"), 2, "--data FILE"),
        (("--limit", "0"), 2, "--limit 0"),
        (("--concurrency", "0"), 2, "--concurrency 0: at least 1"),
        (("--max-failed", "2"), 2, "--max-failed 2"),
        (("--resume", "nothing"), 2, "nothing is no evaluation"),
        (("--sampling", "lragnt"), 2, "did you mean 'lragent'?"),
        (("--scheme", "pre_lr_shard"), 2, "did you mean 'pre_lr_shared'?"),
        (("--set", "base.model=no-such"), 5, "there is no model 'no-such'"),
    ],
)
def test_what_cannot_be_evaluated_says_why(cli: Any, args: tuple[str, ...], code: int, says: str) -> None:
    result = cli("eval", "--offline", *NO_ADAPTERS, *args)
    assert says in result.stderr
    assert result.exit_code == code
