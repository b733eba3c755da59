"""Drift: figures by hand for planted states, divergence 0 where a scheme is exact, and a sentence that follows."""

import copy
import json
import math
import shutil
from pathlib import Path

import pytest
import torch

from agentrt.errors import DataError, SchemeError, UsageError
from agentrt.evaluate import fidelity
from agentrt.evaluate.drift.geometry import Figures, Tally, token_figures
from agentrt.evaluate.drift.handovers import BIN, Geometry, Place, handovers
from agentrt.evaluate.drift.job import run_drift
from agentrt.evaluate.drift.result import declare_drift, draw, to_record
from agentrt.evaluate.drift.schemes import parse_drift_schemes
from agentrt.evaluate.drift.verdict import base_of, choose, verdict
from agentrt.evaluate.fidelity import Fidelity, Reference
from agentrt.evaluate.forced import Call, Forced, Sample, force
from agentrt.model.adapters import AdapterSet
from agentrt.model.backbone import Backbone
from agentrt.model.states import LayerStates, visit_states
from agentrt.model.tiny import tiny_adapter
from agentrt.schemes import Scheme
from agentrt.trajectory import NEUTRAL
from tests.evaluate.test_forced import make_sample
from tests.models import make

EXACT_FOR_EQUAL_ADAPTERS = (
    "full_shared",
    "pre_lr_shared",
    "base_lr_shared",
    "rebase_shared:pivot=plan",
    "neutral_prefix:native",
    "own_kv",
    "droidspeak:layers=1-2",
    "droidspeak_scattered:layers=0+2",
    "cacheblend:ratio=0.3",
    "relay_caching:layers=0-1",
)


def test_figures_of_one_token_by_hand() -> None:
    neutral = torch.tensor([[3.0, 4.0]])
    previous, current = neutral + torch.tensor([[0.0, 2.0]]), neutral + torch.tensor([[1.0, 0.0]])
    found = token_figures(previous, current, neutral)
    size = math.hypot(4.0, 4.0)
    for value, wanted in zip(found, (2.0, 0.0, math.sqrt(5), math.sqrt(5) / size, 1 / size, 1.0), strict=True):
        assert float(value) == pytest.approx(wanted)


def test_neutral_is_closer_exactly_when_rho_exceeds_twice_the_cosine() -> None:
    generator = torch.Generator().manual_seed(1)
    neutral = torch.randn(500, 6, generator=generator)
    shared = torch.randn(500, 6, generator=generator)
    previous = neutral + shared + torch.randn(500, 6, generator=generator)
    current = neutral + shared + torch.randn(500, 6, generator=generator)
    found = token_figures(previous, current, neutral)
    closer = (current - neutral).norm(dim=1) < (current - previous).norm(dim=1)
    assert torch.equal(found.closer.bool(), closer)
    assert torch.equal(found.rho > 2 * found.cos, closer)
    assert torch.equal(found.gamma > 1, closer)
    assert 0.1 < float(found.closer.mean()) < 0.9
    torch.testing.assert_close(found.previous, found.gamma * found.neutral, rtol=1e-5, atol=1e-7)


def test_what_no_adapter_moved_is_not_compared() -> None:
    neutral = torch.ones(3, 4)
    previous, current = neutral.clone(), neutral.clone()
    previous[1] += 1  # only the previous agent moved it: the neutral state is exact
    current[2] += 1  # only the current one: both are equally wrong
    found = token_figures(previous, current, neutral)
    assert found.closer.isnan().tolist() == [True, False, False]
    assert found.closer[1:].tolist() == [1, 0]
    assert found.rho.isnan().tolist() == [True, True, False]
    assert (float(found.rho[2]), float(found.gamma[2])) == (0.0, 1.0)
    tally = Tally()
    tally.add(found)
    assert tally.figures.closer == 0.5
    assert tally.figures.tokens == 3
    assert Tally().figures == Figures(None, None, None, None, None, None, 0)


def test_a_handover_is_all_that_others_processed_since() -> None:
    calls = (("plan", 4, 2), ("plan", 1, 1), ("action", 3, 2), ("plan", 1, 1), ("reflect", 2, 2))
    sample = Sample("s", (1, 2), tuple(Call(name, (1,) * context, (1,) * made) for name, context, made in calls))
    assert [tuple(each) for each in handovers(sample)] == [
        ("plan", "action", 0, 7),
        ("plan", "action", 7, 9),
        ("action", "plan", 9, 14),
        ("plan", "reflect", 0, 7),
        ("plan", "reflect", 7, 9),
        ("action", "reflect", 9, 14),
        ("plan", "reflect", 14, 16),
    ]


def test_planted_states_are_counted_by_layer_transition_and_position() -> None:
    sample = Sample("s", (), (Call("plan", (1,) * (BIN + 3), (1,)), Call("action", (1,), (1,))))
    tokens = BIN + 3
    zero = torch.zeros(tokens + 5, 2)
    alone, plan, action = zero + torch.tensor([3.0, 4.0]), zero + torch.tensor([3.0, 6.0]), zero + 4.0
    states = {
        name: LayerStates(rows, rows, rows * scale)
        for name, rows, scale in ((NEUTRAL, alone, 1), ("plan", plan, 2), ("action", action, 1))
    }
    geometry = Geometry(num_layers=2)
    geometry.add(sample, 1, states)
    figures = geometry.by_layer("base", "plan -> action")[1].figures
    assert figures.tokens == tokens
    assert figures.rho == pytest.approx(2.0)
    assert figures.cos == pytest.approx(0.0)
    assert figures.gamma == pytest.approx(math.sqrt(5))
    assert figures.closer == 1
    full = geometry.by_layer("full")[1].figures
    assert full.previous == pytest.approx(math.hypot(2.0, 8.0) / math.hypot(4.0, 4.0))
    assert full.neutral is None
    assert geometry.by_layer("base")[0].tokens == 0
    assert {place.bin: tally.tokens for place, tally in geometry.places.items() if place.part == "hidden"} == {
        0: BIN,
        1: 3,
    }
    assert geometry.places[Place("hidden", 1)].figures.rho == pytest.approx(2.0)


def test_states_are_the_stock_model_s_own() -> None:
    model, folders = make("llama", targets=("q_proj", "v_proj", "o_proj"))
    backbone = Backbone(copy.deepcopy(model))
    adapters = backbone.load_adapters(folders)
    ids = list(range(5, 30))
    found: dict[int, dict[str, LayerStates]] = {}

    def keep(layer: int, states: dict[str, LayerStates]) -> None:
        found[layer] = {path: LayerStates(*(part.clone() for part in each)) for path, each in states.items()}

    visit_states(backbone, adapters, ids, {NEUTRAL: 25, "plan": 25, "action": 11}, keep)  # type: ignore[arg-type]
    with torch.no_grad():
        stock = model(torch.tensor([ids]), output_hidden_states=True)
    for layer in range(model.config.num_hidden_layers - 1):  # transformers norms what leaves the last
        torch.testing.assert_close(
            found[layer][NEUTRAL].hidden, stock.hidden_states[layer + 1][0], rtol=1e-4, atol=1e-4
        )
    first = found[0]
    torch.testing.assert_close(first["plan"].base, first[NEUTRAL].base, rtol=1e-4, atol=1e-5)
    assert float((first["plan"].full - first["plan"].base).norm()) > 1e-2
    torch.testing.assert_close(first[NEUTRAL].full, first[NEUTRAL].base)
    assert len(first["action"].hidden) == 11
    assert float((found[1]["plan"].base - found[1][NEUTRAL].base).norm()) > 1e-3


def test_divergence_by_hand() -> None:
    sample = Sample("s", (), (Call("plan", (1,), (1,) * 70), Call("action", (1,), (1,) * 30)))
    p, q = torch.full((100, 2), 0.5), torch.tensor([0.9, 0.1]).repeat(100, 1)
    q[:70] = 0.5  # plan is right; more tokens than are compared at once
    wanted = 0.5 * math.log(0.5 / 0.9) + 0.5 * math.log(0.5 / 0.1)
    held = Reference(sample, p.log() + 3).hold(Forced(q.log() - 2, 7, 9))
    assert held.by_role["action"] == pytest.approx(wanted, rel=1e-6)
    assert held.by_role["plan"] == pytest.approx(0, abs=1e-9)
    assert held.kl == pytest.approx(0.3 * wanted, rel=1e-6)
    assert (held.rows, held.kv_bytes_peak) == (7, 9)


def test_equal_adapters_under_other_names_diverge_under_no_exact_scheme(tmp_path: Path) -> None:
    model, _ = make("llama")
    backbone = Backbone(copy.deepcopy(model))
    folder = tiny_adapter(model, tmp_path / "one", targets=("q_proj", "v_proj"), seed=5)
    adapters = backbone.load_adapters(dict.fromkeys(("plan", "action", "reflect"), folder))
    samples = [make_sample(seed) for seed in (3, 4)]
    found = run_drift(backbone, adapters, samples, schemes=",".join((*EXACT_FOR_EQUAL_ADAPTERS, "rebase_shared")))
    *exact, neutral = found.schemes
    assert [each.label for each in exact] == list(EXACT_FOR_EQUAL_ADAPTERS)
    for each in exact:
        assert max(each.values) < 1e-6, each.label
        assert all(estimate.mean < 1e-6 for estimate in each.by_role.values())
    assert neutral.overall.mean > 1e-4
    figures = found.geometry.overall("base").figures
    assert figures.previous == pytest.approx(0, abs=1e-6)
    assert figures.cos == pytest.approx(1, abs=1e-4)
    assert figures.neutral is not None
    assert figures.neutral > 1e-3
    assert "should use full_shared" in found.sentence


def test_a_drift_says_everything_in_one_record_and_one_figure(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    model, folders = make("qwen3")
    backbone = Backbone(copy.deepcopy(model))
    adapters = backbone.load_adapters(folders)
    stages: list[tuple[float, float]] = []
    samples = [make_sample(seed) for seed in (3, 4)]
    found = run_drift(backbone, adapters, samples, report=lambda _, done, total: stages.append((done, total)))
    record = json.loads(json.dumps(to_record(found, declare_drift(backbone, adapters, 0))))
    labels = [each["scheme"] for each in record["schemes"]]
    assert labels == ["non_shared", *parse_drift_schemes("core", ("plan", "action", "reflect"))]
    by_label = {each["scheme"]: each for each in record["schemes"]}
    assert by_label["non_shared"]["kl"]["mean"] == 0
    for role in ("plan", "action", "reflect"):
        pivot = by_label[f"rebase_shared:pivot={role}"]["by_role"]
        assert pivot[role]["mean"] < 1e-6
        assert all(each["mean"] > 1e-6 for name, each in pivot.items() if name != role)
    low, high = by_label["full_shared"]["kl"]["ci95"]
    assert low <= by_label["full_shared"]["kl"]["mean"] <= high
    assert by_label["full_shared"]["rows"] < by_label["non_shared"]["rows"]
    assert len(record["layers"]["hidden"]["plan -> action"]) == backbone.num_layers
    assert record["declared"]["dtype"] == "float32"
    assert stages[-1] == (len(samples) * 12, len(samples) * 12)
    assert draw(found.geometry, tmp_path / "figures" / "drift.png").read_bytes().startswith(b"\x89PNG")


def test_a_drift_in_pieces_is_the_same_and_runs_nothing_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, shared = make("llama")
    folders = {name: shutil.copytree(folder, tmp_path / name) for name, folder in shared.items()}
    backbone = Backbone(copy.deepcopy(model))
    adapters = backbone.load_adapters(folders)
    samples, file = [make_sample(seed) for seed in (3, 4, 5)], tmp_path / "pieces" / "rows.jsonl"
    chosen = "full_shared,rebase_shared"
    whole = to_record(run_drift(backbone, adapters, samples, schemes=chosen), {})

    run_drift(backbone, adapters, samples[:1], schemes=chosen, rows=file)
    run_drift(backbone, adapters, samples[:2], schemes=chosen, rows=file)
    text = file.read_text()
    file.write_text(text + text.splitlines()[1][:1000])  # killed while it wrote
    forced: list[str] = []

    def counted(scheme: Scheme, backbone: Backbone, adapters: AdapterSet, sample: Sample) -> Forced:
        forced.append(sample.id)
        return force(scheme, backbone, adapters, sample)

    monkeypatch.setattr(fidelity, "force", counted)
    pieces = to_record(run_drift(backbone, adapters, samples, schemes=chosen, rows=file), {})
    assert forced == [samples[2].id] * 3
    assert file.read_text().startswith(text)
    assert len(file.read_text().splitlines()) == 4
    assert_equal(pieces, whole)
    again = to_record(run_drift(backbone, adapters, samples, schemes=chosen, rows=file), {})
    assert len(forced) == 3
    assert again == pieces

    with pytest.raises(UsageError, match=r"its schemes is .*now it is .*name another file"):
        run_drift(backbone, adapters, samples, schemes="full_shared", rows=file)
    tiny_adapter(model, folders["plan"], seed=77)
    with pytest.raises(UsageError, match="its adapters is"):
        run_drift(backbone, backbone.load_adapters(folders), samples, schemes=chosen, rows=file)
    file.write_text(text.splitlines()[0] + "\n{}\n")
    with pytest.raises(DataError, match=r"rows.jsonl:2: not a row of a drift"):
        run_drift(backbone, adapters, samples, schemes=chosen, rows=file)
    file.write_text("what\n")
    with pytest.raises(DataError, match=r"rows.jsonl:1: not a line of JSON"):
        run_drift(backbone, adapters, samples, schemes=chosen, rows=file)


def assert_equal(found: object, wanted: object) -> None:
    """JSON values, numbers to rounding."""
    if isinstance(wanted, dict):
        assert isinstance(found, dict)
        assert found.keys() == wanted.keys()
        for key, value in wanted.items():
            assert_equal(found[key], value)
    elif isinstance(wanted, list | tuple):
        assert isinstance(found, list | tuple)
        for one, other in zip(found, wanted, strict=True):
            assert_equal(one, other)
    elif isinstance(wanted, float):
        assert found == pytest.approx(wanted, rel=1e-9)
    else:
        assert found == wanted


def test_schemes_that_adapters_do_not_allow_are_left_out_of_a_group_and_refused_by_name() -> None:
    model, folders = make("llama")
    backbone = Backbone(copy.deepcopy(model))
    adapters = backbone.load_adapters(folders)
    found = run_drift(backbone, adapters, [make_sample(3, count=3)], schemes="all")
    left_out = {each["scheme"]: each["reason"] for each in to_record(found, {})["left_out"]}
    assert list(left_out) == ["base_lr_shared", "alora", "ridge"]
    for scheme, reason in zip(left_out, ("differ in A", "no activated LoRA", "no maps; fit them"), strict=True):
        assert reason in left_out[scheme]
    with pytest.raises(SchemeError, match="no maps; fit them with `agentrt profile --ridge` and name the file"):
        run_drift(backbone, adapters, [make_sample()], schemes="ridge")
    with pytest.raises(SchemeError, match="alora"):
        run_drift(backbone, adapters, [make_sample()], schemes="alora")
    with pytest.raises(UsageError, match="besides non_shared"):
        run_drift(backbone, adapters, [make_sample()], schemes="non_shared")


def planted(label: str, divergences: list[float], rows: int, peak: int) -> Fidelity:
    """A scheme with these divergences, planted as two-token distributions."""
    sample = Sample("s", (), (Call("plan", (1,), (1,)),))
    found = Fidelity(label)
    for value in divergences:
        # KL((1/2, 1/2) || (q, 1-q)) = -ln(2 sqrt(q (1 - q)))
        q = 0.5 * (1 + math.sqrt(1 - math.exp(-2 * value)))
        logits = torch.tensor([[q, 1 - q]], dtype=torch.float64).log()
        found.add(Reference(sample, torch.tensor([[0.5, 0.5]], dtype=torch.float64)).hold(Forced(logits, rows, peak)))
    assert found.values == pytest.approx(divergences)
    return found


PREVIOUS_NEARER = Figures(0.9, 0.8, 0.6, 0.10, 0.16, 0.1, 50)
NEUTRAL_NEARER = Figures(1.5, 0.2, 1.6, 0.32, 0.20, 0.9, 50)


def test_the_sentence_names_the_nearest_scheme_its_cost_and_the_reason() -> None:
    reference = planted("non_shared", [0, 0, 0], 3000, 30 << 20)
    pre = planted("pre_lr_shared", [0.03, 0.04, 0.05], 1000, 12 << 20)
    rebase = planted("rebase_shared", [0.13, 0.16, 0.15], 2000, 13 << 20)
    full = planted("full_shared", [0.13, 0.10, 0.11], 1000, 11 << 20)
    text = verdict([full, pre, rebase], reference, PREVIOUS_NEARER)
    assert text.startswith("These adapters should use pre_lr_shared: it costs 1,000 rows and 12.0 MiB a trajectory")
    assert "(non_shared: 3,000 rows and 30.0 MiB a trajectory)" in text
    assert "KL 0.0400" in text
    assert "the least of 3 schemes that hold or run less" in text
    own = planted("own_kv", [0, 0, 0], 3000, 30 << 20)  # exact, but no gain: it is not compared with
    assert verdict([own, full, pre, rebase], reference, PREVIOUS_NEARER) == text
    assert "the only scheme measured" in verdict([own, pre], reference, PREVIOUS_NEARER)
    assert "because the previous speaker's base cache is nearer" in text
    assert "0.100 against 0.160" in text
    assert text.count(".\n") == 0
    assert text.endswith(".")


def test_the_sentence_turns_with_the_numbers() -> None:
    reference = planted("non_shared", [0, 0, 0], 3000, 30 << 20)
    pre = planted("pre_lr_shared", [0.13, 0.14, 0.15], 1000, 12 << 20)
    rebase = planted("rebase_shared", [0.03, 0.06, 0.05], 2000, 13 << 20)
    text = verdict([pre, rebase], reference, NEUTRAL_NEARER)
    assert text.startswith("These adapters should use rebase_shared: it costs 2,000 rows")
    assert "because the neutral base cache is nearer" in text
    assert "although the previous speaker's" in verdict([pre, rebase], reference, PREVIOUS_NEARER)


def test_of_schemes_that_cannot_be_told_apart_the_cheapest_is_named() -> None:
    reference = planted("non_shared", [0, 0, 0], 3000, 30 << 20)
    pre = planted("pre_lr_shared", [0.05, 0.02, 0.05], 1000, 12 << 20)
    pivot = planted("rebase_shared:pivot=plan", [0.03, 0.05, 0.03], 1100, 12 << 20)
    assert choose([pre, pivot], reference) is pre
    text = verdict([pre, pivot], reference, PREVIOUS_NEARER)
    assert "the cheapest not measurably farther than the nearest (rebase_shared:pivot=plan, KL 0.0367)" in text
    one = planted("pre_lr_shared", [0.05], 1000, 12 << 20)
    other = planted("rebase_shared:pivot=plan", [0.03], 1100, 12 << 20)
    assert choose([one, other], planted("non_shared", [0], 3000, 30 << 20)) is other
    dear = planted("own_kv", [0, 0, 0], 3000, 30 << 20)
    assert verdict([dear], reference, PREVIOUS_NEARER).startswith("These adapters should use non_shared")


def test_whose_base_a_scheme_shares() -> None:
    assert base_of("pre_lr_shared") == base_of("full_shared") == "previous"
    assert base_of("rebase_shared:adapted_tail=16") == base_of("neutral_prefix:full") == "neutral"
    assert base_of("rebase_shared:pivot=plan") is None
