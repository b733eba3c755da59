"""Replays on a tiny model: books equal formulas, results equal definitions, and what is wrong gets no ratio."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

from agentrt.config.trace import TraceConfig
from agentrt.errors import UsageError
from agentrt.evaluate.replay.adapters import RandomAdapters
from agentrt.evaluate.replay.check import TOLERANCES, Check, Checker
from agentrt.evaluate.replay.contestant import EngineContestant, Run, play
from agentrt.evaluate.replay.declare import declare
from agentrt.evaluate.replay.formulas import Expected, expected
from agentrt.evaluate.replay.job import Entrant, Field, compare, run_replay
from agentrt.evaluate.replay.maps import fit_maps
from agentrt.evaluate.replay.measure import WARM_CALLS, Measured, measure
from agentrt.evaluate.replay.plan import ReplayPlan, variants
from agentrt.evaluate.replay.plots import draw
from agentrt.evaluate.replay.result import judge, to_record
from agentrt.evaluate.replay.trace import Trace, build_trace, random_contexts
from agentrt.model.adapters import AdapterSet
from agentrt.model.backbone import Backbone
from agentrt.model.tiny import TinyFamily, tiny_model
from agentrt.schemes import Scheme
from agentrt.schemes.full_shared import FullShared
from agentrt.schemes.make import make_scheme
from agentrt.schemes.pre_lr_shared import PreLRShared, PreLRSharedSession
from agentrt.schemes.rebase_shared import ReBaseShared
from agentrt.schemes.ridge import Ridge, RidgeSession
from agentrt.step import Pass

SCHEMES = (
    "non_shared",
    "full_shared",
    "base_shared",
    "pre_lr_shared",
    "rebase_shared:lp",
    "rebase_shared:db",
    "rebase_shared:fused",
    "rebase_shared:auto",
    "rebase_shared:auto,adapted_tail=3",
    "rebase_shared:auto,pivot=plan",
    "rebase_shared:fused,pivot=action",
    "rebase_shared:lp,pivot=plan,adapted_tail=3",
    "rebase_shared:lp,lp_at=handover",
    "droidspeak:layers=1-2",
    "droidspeak_scattered:layers=0+2",
    "cacheblend",
    "relay_caching:layers=1-3",
    "neutral_prefix:native",
    "neutral_prefix:question",
    "neutral_prefix:full,schedule=auto",
    "own_kv",
    "ridge",
    "ridge:top=2",
)

FACTORED = ("base_shared", "pre_lr_shared", *(name for name in SCHEMES if name.startswith("rebase_shared")))


class Bench:
    """A tiny backbone with random adapters for the agents of `react`."""

    def __init__(self, folder: Path, family: TinyFamily = "llama") -> None:
        self.backbone = Backbone(tiny_model(family, layers=4))
        self.config = TraceConfig.load("react")
        self.folder = folder
        self.adapters = self.make("r=4", "own")

    def make(self, spec: str, name: str, *, shared_a: bool = False) -> AdapterSet:
        names, base = self.config.agents, self.backbone.names[0]
        shapes, place = self.backbone.shapes, self.folder / name
        written = RandomAdapters.parse(spec).write(names, shapes, place, base_name=base, shared_a=shared_a)
        return self.backbone.load_adapters(written)

    def made(self, label: str, adapters: AdapterSet) -> Scheme:
        """The scheme, with maps for `adapters` if it takes some."""
        scheme = make_scheme(label)
        if scheme.maps_file is None:
            return scheme
        return fit_maps(scheme, self.backbone, adapters, self.folder, seed=3)

    def trace(self, context: int, calls: int = 17) -> Trace:
        whole = build_trace(self.config, "react", context, self.config.agents)
        return whole.prefix(calls, 40, 3)  # short: 512 and 32 tokens would only take time


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(tmp_path_factory.mktemp("bench"))


@pytest.mark.parametrize("ride_rows", [0, 2])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_rows_and_bytes_equal_the_formulas(bench: Bench, scheme: str, ride_rows: int) -> None:
    trace, chosen = bench.trace(20), bench.made(scheme, bench.adapters)
    contestant = EngineContestant(
        scheme, chosen, bench.backbone, bench.adapters, max_tokens=trace.num_tokens, ride_rows=ride_rows
    )
    try:
        run = play(contestant, trace, random_contexts(trace, 211, 0))
        again = play(contestant, trace, random_contexts(trace, 211, 1))
    finally:
        contestant.close()
    books = expected(chosen, trace, bench.backbone.layout(bench.adapters), riding=ride_rows > 0)
    rows = (run.prefill_rows, run.neutral_rows, run.decode_rows)
    assert books == Expected(*rows, run.kv_bytes_peak, run.repaired_layer_rows)
    assert run[4:] == again[4:]
    assert len(contestant.token_ids) == trace.num_tokens + 1
    assert 0 < run.ttft_s <= run.submit_to_first_token_s <= run.total_s


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_scheme_passes_its_check_and_could_fail_it(bench: Bench, scheme: str) -> None:
    check = Checker(bench.backbone, bench.adapters, bench.trace(24)).check(make_scheme(scheme))
    assert check.ok, check.reason
    assert check.error is not None
    assert check.separation is not None
    assert check.error < 1e-4 < 0.05 < check.separation
    assert check.tokens == 32


@pytest.mark.parametrize("family", ["qwen3", "ministral", "smollm3"])
def test_the_check_knows_norms_windows_and_layers_without_rope(tmp_path: Path, family: TinyFamily) -> None:
    bench = Bench(tmp_path, family)
    checker = Checker(bench.backbone, bench.adapters, bench.trace(24))
    for scheme in ("non_shared", "base_shared", "rebase_shared:lp"):
        check = checker.check(make_scheme(scheme))
        assert check.ok, (scheme, check.reason)


def test_a_selective_scheme_declares_its_layers_and_what_its_ratio_counts(bench: Bench) -> None:
    declared = declare(make_scheme("relay_caching:layers=1-3"), bench.backbone, bench.adapters)
    assert declared["repaired_layers"] == {"full": [1], "kept": [2, 3]}
    assert "others wrote" in declared["ratio_counts"]
    assert declare(make_scheme("full_shared"), bench.backbone, bench.adapters)["repaired_layers"] is None


@pytest.mark.parametrize("targets", ["qv", "qkvo"])
def test_base_lr_shared_passes_where_its_adapters_share_a(bench: Bench, targets: str) -> None:
    shared, scheme = bench.make(f"r=4,targets={targets}", f"shared-{targets}", shared_a=True), "base_lr_shared"
    assert shared.shared_a
    trace, chosen = bench.trace(24), make_scheme(scheme)
    check = Checker(bench.backbone, shared, trace).check(chosen)
    assert check.ok, check.reason
    contestant = EngineContestant(scheme, chosen, bench.backbone, shared, max_tokens=trace.num_tokens, ride_rows=0)
    try:
        run = play(contestant, trace, random_contexts(trace, 211, 0))
    finally:
        contestant.close()
    books = expected(chosen, trace, bench.backbone.layout(shared))
    assert books == Expected(run.prefill_rows, run.neutral_rows, run.decode_rows, run.kv_bytes_peak)


def test_ridge_with_another_agent_s_maps_fails_its_check(bench: Bench) -> None:
    checker = Checker(bench.backbone, bench.adapters, bench.trace(24))
    check = checker.check(Mistaken())
    assert not check.ok
    assert check.error is not None
    assert check.error > 0.05


@pytest.mark.parametrize("family", ["llama", "qwen3", "smollm3"])
def test_adapters_on_the_key_are_checked_under_every_scheme(tmp_path: Path, family: TinyFamily) -> None:
    bench = Bench(tmp_path, family)
    checker = Checker(bench.backbone, bench.make("r=2,targets=qkvo", "qkvo"), bench.trace(24))
    for scheme in SCHEMES if family == "qwen3" else FACTORED:
        check = checker.check(make_scheme(scheme))
        assert check.ok, (scheme, check.reason)
        assert check.error is not None
        assert check.separation is not None
        assert check.error < 1e-4 < 0.05 < check.separation, scheme
    shared = bench.make("r=2,targets=qkvo", "shared", shared_a=True)
    check = Checker(bench.backbone, shared, bench.trace(24)).check(make_scheme("base_lr_shared"))
    assert check.ok, check.reason


@pytest.mark.parametrize("ride_rows", [0, 2])
@pytest.mark.parametrize("scheme", [*FACTORED, "rebase_shared:auto,fuse_rows=9"])
def test_rows_and_bytes_with_key_columns_and_keys_made_for_the_reader(
    tmp_path: Path, scheme: str, ride_rows: int
) -> None:
    bench = Bench(tmp_path)
    adapters, chosen = bench.make("r=4,targets=qkvo", "qkvo"), make_scheme(scheme)
    trace = bench.trace(20)
    contestant = EngineContestant(
        scheme, chosen, bench.backbone, adapters, max_tokens=trace.num_tokens, ride_rows=ride_rows
    )
    try:
        run = play(contestant, trace, random_contexts(trace, 211, 0))
    finally:
        contestant.close()
    books = expected(chosen, trace, bench.backbone.layout(adapters), riding=ride_rows > 0)
    assert books == Expected(run.prefill_rows, run.neutral_rows, run.decode_rows, run.kv_bytes_peak)


def test_the_trace_qkvo_is_react_with_adapters_on_the_key(bench: Bench) -> None:
    (variant,) = variants(ReplayPlan(TraceConfig.load("qkvo"), "qkvo", schemes="core"))
    assert (variant.group, str(variant.random)) == ("r=4", "r=4,targets=qkvo,alpha=16")
    assert TraceConfig.load("qkvo").calls == bench.config.calls


@dataclass(frozen=True)
class Impostor(FullShared):
    """Cheap, and not what its name says."""

    name: ClassVar[str] = "pre_lr_shared"


class Forgetful(PreLRSharedSession):
    """Writes only the speaker's column: the others read what nobody wrote."""

    def _shared_pass(self, path: str, end: int, logits: Any) -> Any:
        made = super()._shared_pass(path, end, logits)
        return type(made)(**{**vars(made), "writes": (made.writes[0], *made.writes[1:2])})


@dataclass(frozen=True)
class Careless(PreLRShared):
    def open(self, layout: Any, store: Any, trajectory: Any) -> Forgetful:
        return Forgetful(tuple(layout.ranks), store, trajectory)


@dataclass(frozen=True)
class Tailed(ReBaseShared):
    """Says `adapted_tail: all` and reads three tokens."""

    def options(self) -> dict[str, object]:
        return {**super().options(), "adapted_tail": "all"}


class MistakenSession(RidgeSession):
    def _advance(self) -> list[Pass]:
        *before, own = super()._advance()
        return [*before, replace(own, maps=tuple(replace(each, how="plan") for each in own.maps))]


@dataclass(frozen=True)
class Mistaken(Ridge):
    """Everything goes through the maps of one agent."""

    def open(self, layout: Any, store: Any, trajectory: Any) -> MistakenSession:
        return MistakenSession(store, trajectory)


@pytest.mark.parametrize("sabotaged", [Impostor(), Careless(), Tailed(schedule="lp", adapted_tail=3)])
def test_a_sabotaged_scheme_is_refused_and_the_others_are_not(bench: Bench, sabotaged: Any) -> None:
    plan = ReplayPlan(bench.config, "react", repeats=1)
    entrants = [
        Entrant("non_shared", make_scheme("non_shared"), bench.adapters),
        Entrant("sabotaged", sabotaged, bench.adapters),
    ]
    field = Field("", [bench.trace(16, calls=8)], entrants, [], "")
    (findings,) = compare(bench.backbone, plan, [field])
    honest, wrong = (finding.outcome for finding in findings)
    assert honest.ratios is not None
    assert honest.ratios.ttft_vs_non_shared == 1.0
    assert wrong.ratios is None
    assert wrong.wrong
    assert "equivalence check failed" in wrong.refused
    record = to_record(wrong, findings[1].declared)
    assert set(record["ratios"].values()) == {None}
    assert record["refused"] == wrong.refused


def test_what_is_nearer_to_another_definition_is_refused_whatever_the_tolerance(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(TOLERANCES, torch.float32, 10.0)  # as wide as bf16's rounding is beside some differences
    checker = Checker(bench.backbone, bench.adapters, bench.trace(16, calls=8))
    assert checker.check(make_scheme("pre_lr_shared")).ok
    wrong = checker.check(Impostor())
    assert not wrong.ok
    assert "nearer to full_shared's" in wrong.reason


RUN = Run(1.0, 1.5, 2.0, 4.0, 100, 10, 0, 5)
BOOKS = Expected(10, 0, 5, 100)
GOOD = Check(True, 1e-6, 1e-3, 1.0, 32)


def test_ratios_are_medians_over_repeats_against_trusted_baselines(bench: Bench) -> None:
    trace = bench.trace(4)
    slow = Measured("non_shared", trace, tuple(RUN._replace(ttft_s=t, total_s=t) for t in (4.0, 9.0, 2.0)))
    fast = Measured("x", trace, tuple(RUN._replace(ttft_s=t, total_s=t) for t in (1.0, 8.0, 1.2)))
    base = Measured("full_shared", trace, (RUN._replace(prefill_rows=11),))
    labels = ("non_shared", "x", "full_shared")
    outcomes = judge([slow, fast, base], dict.fromkeys(labels, BOOKS), dict.fromkeys(labels, GOOD))
    ratios = outcomes[1].ratios
    assert ratios is not None
    assert (ratios.ttft_vs_non_shared, ratios.throughput_vs_non_shared) == (0.6, 1.6667)
    assert ratios.ttft_vs_full_shared is None, "its rows differ from the formula, so nothing is compared with it"
    assert outcomes[2].refused == "prefill_rows is 11, its formula says 10"
    assert outcomes[2].wrong


def test_a_scheme_that_nothing_is_known_of_is_refused_but_not_called_wrong(bench: Bench) -> None:
    measured = [Measured("new", bench.trace(4), (RUN,))]
    (outcome,) = judge(measured, {"new": None}, {"new": Check(False, None, 1e-3, None, 0, "it has no definition")})
    assert outcome.ratios is None
    assert "it has no definition" in outcome.refused
    assert not outcome.wrong


class Fake:
    def __init__(self, label: str, log: list[str]) -> None:
        self.label, self._log = label, log

    def begin(self, trace: Trace, contexts: Sequence[Sequence[int]], tool_wait_s: float) -> "Fake":
        self._first = contexts[0][0]
        return self

    def call(self, index: int) -> None:
        self._log.append(f"{self.label}{index} {self._first}")

    def end(self) -> Run:
        return RUN._replace(total_s=float(len(self._log)))

    def close(self) -> None:
        pass


def test_contestants_run_call_by_call_in_turn_on_the_same_tokens_after_a_warm_up(bench: Bench) -> None:
    log: list[str] = []
    seen: list[float] = []
    trace = bench.trace(4)
    measured = measure(
        [(Fake("a", log), trace), (Fake("b", log), trace)],
        vocab_size=211,
        repeats=2,
        report=lambda stage, done, total: seen.append(done / total),
    )
    calls = [f"{label}{index}" for index in range(len(trace.calls)) for label in "ab"]
    warm = 2 * WARM_CALLS
    assert [entry.split()[0] for entry in log] == calls[:warm] + calls * 2
    assert len({entry.split()[1] for entry in log[:warm]}) == 1
    assert log[0].split()[1] != log[warm].split()[1]
    assert [[run.total_s for run in each.runs] for each in measured] == [[warm + n * len(calls) for n in (1, 2)]] * 2
    assert measured[0].middle.total_s == warm + 1.5 * len(calls)
    assert seen == sorted(seen)
    assert seen[-1] == 1.0


def test_a_whole_replay_with_random_adapters_declares_itself(tmp_path: Path) -> None:
    backbone = Backbone(tiny_model(layers=2, max_position_embeddings=64))
    file = tmp_path / "two.yaml"
    calls = "[{agent: next, context: C, decode: 2}, {agent: next, context: 3, decode: 2, tool: true}]"
    file.write_text(f"version: 1\nabout: x\ncrews: [2, 3]\ncontexts: [6, 70]\ncalls: {calls}\n")
    random = RandomAdapters.parse("r=2")
    wait = {"repeats": 1, "tool_wait_s": 0.01, "ride_rows": 1}
    plan = ReplayPlan(TraceConfig.load(file), "two", schemes="pre_lr_shared,rebase_shared", random=random, **wait)
    groups: list[Any] = list(run_replay(backbone, plan))
    assert [group[0].group for group in groups] == ["N=2", "N=3"] * 2
    for group in groups:
        for finding in group:
            outcome, declared = finding.outcome, finding.declared
            assert not outcome.refused, (outcome.measured.label, outcome.refused)
            assert declared["tool_wait_s"] == 0.01 <= outcome.measured.middle.total_s
            assert declared["beyond_positions"] == (outcome.measured.trace.num_tokens > 64)
            assert declared["layout"]["bytes_per_token"]["kv"] == 2 * 2 * 2 * 8 * 4
        assert [finding.declared["ride_rows"] for finding in group] == [None, 1]
    assert set(groups[0][0].declared) >= {"options", "lp_at", "lr_dtype", "dtype", "seed", "versions", "backbone_hash"}


def test_figures_leave_out_what_was_refused(bench: Bench, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    measured = [Measured(label, bench.trace(4), (RUN,)) for label in ("non_shared", "broken_one")]
    checks = {"non_shared": GOOD, "broken_one": GOOD._replace(ok=False, reason="x")}
    outcomes = judge(measured, dict.fromkeys(checks, BOOKS), checks)
    files = draw([("N=4", outcome) for outcome in outcomes], tmp_path / "new")
    assert [file.name for file in files] == ["ttft.svg", "throughput.svg", "memory.svg"]
    text = files[0].read_text()
    assert "non_shared (N=4)" in text
    assert "broken_one" not in text
    with pytest.raises(UsageError, match="nothing to draw"):
        draw([("", outcomes[1])], tmp_path)


def test_without_matplotlib_the_command_that_installs_it_is_named(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UsageError, match=r"pip install 'agentrt\[plots\]'"):
        draw([], tmp_path)
