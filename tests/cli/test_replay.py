"""`agentrt replay`, on a tiny model in a folder."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from agentrt.config.trace import TraceConfig
from agentrt.evaluate.replay.entrants import parse_schemes
from agentrt.evaluate.replay.trace import build_trace
from agentrt.model.tiny import tiny_model, tiny_tokenizer

KEYS = {
    "scheme",
    "context",
    "trajectory_tokens",
    "ttft_s",
    "submit_to_first_token_s",
    "total_s",
    "throughput_tok_s",
    "kv_bytes_peak",
    "prefill_rows",
    "neutral_rows",
    "decode_rows",
    "ratios",
}


@pytest.fixture
def tiny(tmp_path: Path) -> list[str]:
    """Arguments that replay a short trace on a tiny model."""
    tiny_model(vocab_size=259, layers=2).save_pretrained(tmp_path / "tiny")
    (tmp_path / "tiny" / "tokenizer.json").write_text(tiny_tokenizer().specification(), "utf-8")
    calls = (
        "[{agent: plan, context: 9, decode: 2}, {agent: action, context: C, decode: 3}, "
        "{agent: plan, context: 5, decode: 2}]"
    )
    head = "version: 1\nabout: x\nagents: [plan, action]\ncontexts: [7]\n"
    (tmp_path / "mine.yaml").write_text(f"{head}calls: {calls}\n")
    model = ["--set", f"base.model={tmp_path / 'tiny'}", "--set", "base.dtype=float32"]
    return ["replay", "--trace", "mine.yaml", "--random-adapters", "r=2", "--repeats", "1", *model]


def test_json_has_one_object_for_each_scheme_and_context_with_the_stable_keys(cli: Any, tiny: list[str]) -> None:
    result = cli(*tiny, "--context", "7,11", "--schemes", "non_shared,full_shared,rebase_shared:lp", "--json")
    assert result.exit_code == 0, result.stderr
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(line["scheme"], line["context"]) for line in lines] == [
        (scheme, context) for context in (7, 11) for scheme in ("non_shared", "full_shared", "rebase_shared:lp")
    ]
    for line in lines:
        assert set(line) >= KEYS
        assert set(line["ratios"]) >= {"ttft_vs_non_shared", "ttft_vs_full_shared", "throughput_vs_non_shared"}
        assert line["trajectory_tokens"] == 21 + line["context"]
        assert line["check"]["ok"]
        assert line["refused"] is None
        assert line["declared"]["adapter_source"] == "random r=2,targets=qv,alpha=16"
    assert [line["prefill_rows"] for line in lines[:3]] == [9 + 18 + 15, 21, 21]
    assert lines[2]["neutral_rows"] == lines[2]["trajectory_tokens"]
    assert "C = 7" in result.stderr


def test_people_get_a_table_and_figures(cli: Any, tiny: list[str], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    result = cli(*tiny, "--schemes", "full_shared,pre_lr_shared", "--plot", "figures")
    assert result.exit_code == 0, result.stderr
    assert "mine, C = 7: 28 tokens" in result.stdout
    assert "prefill rows" in result.stdout
    assert sorted(file.name for file in (tmp_path / "figures").iterdir()) == [
        "memory.svg",
        "throughput.svg",
        "ttft.svg",
    ]


def test_what_is_left_out_is_a_record_too(cli: Any, tiny: list[str]) -> None:
    result = cli(*tiny, "--schemes", "all", "--json", "-q")
    assert result.exit_code == 0, result.stderr
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    (left_out,) = [line for line in lines if line["event"] == "left_out"]
    assert left_out["scheme"] == "alora"
    assert "activated LoRA" in left_out["reason"]
    assert "ridge" in [line["scheme"] for line in lines if line["event"] == "replay"]


BOOKS = ("prefill_rows", "neutral_rows", "decode_rows", "kv_bytes_peak", "repaired_layer_rows")


@pytest.mark.parametrize(
    ("trace", "tokens"),
    [
        pytest.param("qkvo", 948, marks=pytest.mark.slow),
        ("mine.yaml", 43),
    ],
)
def test_with_adapters_on_q_k_v_and_o_every_scheme_is_measured_and_exact_or_left_out_with_the_reason(
    cli: Any, tiny: list[str], tmp_path: Path, trace: str, tokens: int
) -> None:
    """The shipped trace on a tiny model, and a short one of the same kind."""
    calls = [
        "{agent: plan, context: 9, decode: 2}",
        "{agent: action, context: 3, decode: 2, tool: true}",
        "{agent: plan, context: C, decode: 2}",
        "{agent: action, context: 8, decode: 1}",
        "{agent: plan, context: 5, decode: 2}",
    ]
    own = f"agents: [plan, action]\ncontexts: [9]\nranks: [4]\ntargets: qkvo\ncalls: [{', '.join(calls)}]\n"
    (tmp_path / "mine.yaml").write_text(f"version: 1\nabout: x\n{own}")
    model = tiny[tiny.index("--set") :]
    result = cli("replay", "--trace", trace, "--context", "9", "--schemes", "all", "--repeats", "1", *model, "--json")
    assert result.exit_code == 0, result.stderr
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    found = {line["scheme"]: line for line in lines}
    asked = parse_schemes("all", build_trace(TraceConfig.load(trace), "", 9, ("plan", "action", "reflect")).calls)
    assert sorted(found) == sorted(asked)
    alora = found.pop("alora")
    assert (alora["event"], alora["variant"]) == ("left_out", "r=4")
    assert "no activated LoRA" in alora["reason"]
    for scheme, line in found.items():
        assert line["event"] == "replay", scheme
        assert line["trajectory_tokens"] == tokens
        assert line["check"]["ok"], (scheme, line["check"]["reason"])
        assert line["check"]["error"] < line["check"]["tolerance"]
        assert line["refused"] is None
        assert {name: line[name] for name in BOOKS} == line["expected"], scheme
        assert line["ratios"]["ttft_vs_full_shared"] > 0
        assert line["declared"]["adapter_source"] == "random r=4,targets=qkvo,alpha=16"
        assert {each["key_rank"] for each in line["declared"]["adapters"].values()} == {4}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--trace", "raect"], "did you mean 'react'"),
        (["--context", "256,big"], "'big' is no number of tokens"),
        (["--schemes", "ful_shared", "--random-adapters", "r=2"], "did you mean 'full_shared'"),
        (["--random-adapters", "r=none"], "whole number"),
        (["--repeats", "0"], "at least 1"),
        (["--tool-wait", "-1"], "0 or more"),
    ],
)
def test_bad_input_is_refused_before_a_model_is_loaded(cli: Any, arguments: list[str], message: str) -> None:
    result = cli("replay", *arguments, "--set", "base.model=/nowhere")
    assert result.exit_code == 2, result.stderr
    assert message in result.stderr


def test_plot_without_matplotlib_says_how_to_install_it(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = cli("replay", "--plot", "figures")
    assert result.exit_code == 2
    assert "pip install 'agentrt[plots]'" in result.stderr
