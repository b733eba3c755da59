"""`agentrt serve-bench`, on a tiny model in a folder."""

import json
from pathlib import Path
from typing import Any

import pytest

from agentrt.model.tiny import tiny_model, tiny_tokenizer


@pytest.fixture
def tiny(tmp_path: Path) -> list[str]:
    """Arguments that offer a short trace to a tiny model."""
    tiny_model(vocab_size=259, layers=2).save_pretrained(tmp_path / "tiny")
    (tmp_path / "tiny" / "tokenizer.json").write_text(tiny_tokenizer().specification(), "utf-8")
    calls = "[{agent: plan, context: 9, decode: 2}, {agent: action, context: C, decode: 3}]"
    (tmp_path / "mine.yaml").write_text(
        f"version: 1\nabout: x\nagents: [plan, action]\ncontexts: [7]\ncalls: {calls}\n"
    )
    model = ["--set", f"base.model={tmp_path / 'tiny'}", "--set", "base.dtype=float32"]
    schemes = ["--schemes", "pre_lr_shared,rebase_shared:lp", "--ride-rows", "4"]
    return ["serve-bench", "--trace", "mine.yaml", "--context", "7", "--random-adapters", "r=2", *schemes, *model]


def test_json_has_saturation_and_one_object_for_each_rate_and_scheme(cli: Any, tiny: list[str]) -> None:
    result = cli(*tiny, "--trajectories", "3", "--rates", "20,200", "--json")
    assert result.exit_code == 0, result.stderr
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    schemes = ["pre_lr_shared", "rebase_shared:lp"]
    assert [(line["event"], line["scheme"], line["rate_per_s"]) for line in lines] == [
        *(("saturation", scheme, None) for scheme in schemes),
        *(("serve_bench", scheme, rate) for rate in (20.0, 200.0) for scheme in schemes),
    ]
    for line in lines:
        assert (line["calls"], line["context"], line["arrivals"]) == (6, 7, "trajectories")
        assert set(line["ttft_s"]) == {"p50", "p90", "p99"}
        assert line["throughput_tok_s"] > 0
    assert lines[2]["makespan_s"] < lines[2]["trajectories"] / 20 + 5


def test_people_get_a_table_and_figures_of_the_papers_harness(cli: Any, tiny: list[str], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    result = cli(*tiny, "--trajectories", "2", "--loads", "0.5", "--arrivals", "calls", "--plot", "figures")
    assert result.exit_code == 0, result.stderr
    assert "all at once: saturation" in result.stdout
    assert "latency p90" in result.stdout
    assert {file.name for file in (tmp_path / "figures").iterdir()} == {
        *("ttft_p50.svg", "ttft_p90.svg", "ttft_p99.svg"),
        *("latency_p90.svg", "throughput.svg"),
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--trace", "raect"], "did you mean 'react'"),
        (["--rates", "1,fast"], "numbers, separated by commas"),
        (["--loads", "0"], "above 0"),
        (["--arrivals", "turns"], "trajectories or calls"),
        (["--trajectories", "0"], "at least 1"),
        (["--trace", "agents"], "serve-bench takes one"),
        (["--schemes", "ful_shared", "--random-adapters", "r=2"], "did you mean 'full_shared'"),
    ],
)
def test_bad_input_is_refused_before_a_model_is_loaded(cli: Any, arguments: list[str], message: str) -> None:
    result = cli("serve-bench", *arguments, "--set", "base.model=/nowhere")
    assert result.exit_code == 2, result.stderr
    assert message in result.stderr
