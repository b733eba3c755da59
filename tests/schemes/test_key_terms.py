"""Adapters on the key projection where keys stay factored: oracles 2, 6, 9 and 12, and what is shared and copied."""

import shutil

import pytest
import torch

from agentrt.cache.layout import KEYS, KV
from agentrt.model.ridge import rotate
from agentrt.model.tiny import tiny_adapter
from tests.models import AGENTS, FAMILIES, make, random_turns
from tests.reference.dense import dense_model
from tests.reference.held import assert_close
from tests.reference.registry import REFERENCES
from tests.rig import Rig
from tests.schemes.test_dense_reference import FACTORED, QKVO
from tests.schemes.test_invariants import NAMED, peft_logits, rows_of, stock_logits

ALONE = ["base_shared", "base_lr_shared", "pre_lr_shared", "rebase_shared:lp,lp_at=handover"]
"""These equal transformers + peft while one agent acts."""

RUN = [*FACTORED[:3], "rebase_shared:lp", "rebase_shared:auto"]


def keyed(family, scheme, **options):
    return make(family, targets=QKVO, shared_a=scheme == "base_lr_shared", **options)


@pytest.mark.parametrize("family", FAMILIES)
def test_keys_made_for_a_reader_are_those_it_would_have_computed(family):
    """Oracle 9: the same hidden states (one agent), so the same keys; without a norm a sum of two rotated parts."""
    model, folders = keyed(family, "pre_lr_shared")
    ours, exact = Rig(model, folders, "pre_lr_shared"), Rig(model, folders, "non_shared")
    ids = list(range(20, 43))
    for rig in (ours, exact):
        rig.turn("plan", ids, [1, 2, 3])
        rig.turn("plan", [4], [5], finish=False)
    backbone, length = ours.backbone, len(ours.trajectory) - 1
    cos, sin = (each[0][:, None] for each in backbone.rotary(range(length + 1)))
    for layer in range(3):
        made = ours.dense("keys:plan", "k", layer)
        assert_close(made, exact.dense("plan", "k", layer), layer)
        if family != "qwen3":
            up = ours.adapters.weights["plan"][layer, "k_proj"].up
            term = (ours.dense("lr:plan", "lrk", layer) @ up).view(made.shape)
            parts = ours.dense("base", "k0", layer), term
            parts = [rotate(part, cos, sin) if backbone.rotates(layer) else part for part in parts]
            assert_close(parts[0] + parts[1], made, layer)


@pytest.mark.parametrize("scheme", ALONE)
@pytest.mark.parametrize("family", FAMILIES)
def test_with_one_agent_a_scheme_is_transformers_and_peft(family, scheme):
    model, folders = keyed(family, scheme)
    rig = Rig(model, folders, scheme, preamble=[])
    dense = dense_model(model, folders)
    for _, context, forced in random_turns(seed=2, count=4):
        start = len(rig.trajectory)
        got = rig.turn("action", context, forced)
        ids = rig.trajectory.token_ids
        assert_close(got, rows_of(ids, start, context, forced, peft_logits(dense, "action", ids)), start)


@pytest.mark.parametrize("scheme", RUN)
def test_with_b_zero_a_scheme_is_the_stock_model(scheme):
    model, folders = keyed("qwen3", scheme, zero_b=True)
    rig = Rig(model, folders, scheme, preamble=[7, 7])
    for agent, context, forced in random_turns(seed=1):
        start = len(rig.trajectory)
        got = rig.turn(agent, context, forced)
        ids = rig.trajectory.token_ids
        assert_close(got, rows_of(ids, start, context, forced, stock_logits(model, ids)), agent)


@pytest.mark.parametrize("scheme", ["pre_lr_shared", "base_lr_shared", "rebase_shared:lp,pivot=plan"])
def test_identical_weights_under_three_names_equal_non_shared(tmp_path, scheme):
    model, folders = keyed("qwen3", "pre_lr_shared")
    same = {agent: shutil.copytree(folders["plan"], tmp_path / agent) for agent in AGENTS}
    ours, exact = Rig(model, same, scheme), Rig(model, same, "non_shared")
    for agent, context, forced in random_turns(seed=5):
        got, want = ours.turn(agent, context, forced), exact.turn(agent, context, forced)
        if agent == "plan" or "pivot" not in scheme:
            assert_close(got, want, agent)


@pytest.mark.parametrize("scheme", RUN)
@pytest.mark.parametrize(
    "options",
    [
        {"r": 4, "alpha": 12, "use_rslora": True},
        {"r": 3, "alpha": 7, "rank_pattern": {"layers.1.self_attn.k_proj": 6}, "alpha_pattern": {"k_proj": 5}},
        {"r": 5, "alpha": 2, "layers_to_transform": [0, 2]},
    ],
    ids=["rslora", "patterns", "some layers"],
)
def test_scaling_is_applied_once_per_layer(scheme, options):
    model, folders = keyed("qwen2", scheme, **options)
    against_the_definition(model, folders, scheme, random_turns(seed=9, count=5))


@pytest.mark.parametrize("scheme", [name for name in RUN if name != "base_lr_shared"])
def test_columns_have_key_terms_value_terms_or_both(tmp_path, scheme):
    model, _ = make("qwen3")
    folders = {
        "plan": tiny_adapter(model, tmp_path / "a", r=2, targets=["k_proj"], seed=1),
        "action": tiny_adapter(model, tmp_path / "b", r=7, targets=["v_proj", "o_proj"], seed=2),
        "reflect": tiny_adapter(model, tmp_path / "c", r=3, targets=["k_proj", "v_proj"], seed=3),
    }
    against_the_definition(model, folders, scheme, random_turns(seed=10, count=6))


def against_the_definition(model, folders, scheme, turns):
    rig = Rig(model, folders, scheme)
    reference = REFERENCES[NAMED.get(scheme, scheme).replace("rebase_shared:auto", "rebase_shared:lp")]
    dense = reference(dense_model(model, folders), AGENTS)
    for agent, context, forced in turns:
        assert_close(rig.turn(agent, context, forced), dense.turn(agent, context, forced), agent)


@pytest.mark.parametrize("scheme", [*RUN, "rebase_shared:db"])
def test_bytes_held_equal_the_formula(scheme):
    """Columns are twice as wide; a path that reads holds keys of its own, which are gone when the turn is over."""
    model, folders = keyed("llama", scheme, r=4)
    rig = Rig(model, folders, scheme)
    layers, kv_heads, d, e, rank = 3, 2, 8, 4, 4
    key = layers * kv_heads * d * e
    kv, column = 2 * key, 2 * layers * rank * e
    seen = dict.fromkeys(AGENTS, 0)
    for agent, context, forced in random_turns(seed=12):
        start = rig.trajectory.num_processed
        rig.store.reset_peak()
        rig.turn(agent, context, forced)
        total = rig.trajectory.num_processed
        seen[agent] = total
        columns = {"base_shared": sum(seen.values()), "base_lr_shared": total}.get(scheme, 3 * total)
        beside = scheme in ("rebase_shared:db", "rebase_shared:auto")
        owed = total - rig.sharing.tapes["base"].end  # a short rest of `auto` waits for the next turn
        assert rig.store.held_bytes == total * kv + columns * column - owed * (kv + 2 * column)
        readers = 2 if beside else 1
        private = (total - start) * kv if beside else 0
        if scheme != "rebase_shared:auto":
            assert rig.store.peak_bytes == total * kv + columns * column + private + readers * total * key
    rig.settle()
    assert rig.store.planes[KEYS].pool.num_held == 0


def addresses(rig, tape, part):
    tape = rig.sharing.tapes[tape]
    plane = rig.store.planes[tape.plane]
    return [row.data_ptr() for run in tape.runs(0, tape.end) for row in plane.locate(run).read(part, 1)]


@pytest.mark.parametrize("scheme", ["pre_lr_shared", "rebase_shared:lp"])
def test_agents_share_base_keys_and_columns_slot_by_slot(scheme):
    model, folders = keyed("qwen3", scheme)
    rig = Rig(model, folders, scheme)
    rig.turn("plan", list(range(30)), [1, 2, 3])
    before = {name: addresses(rig, name, part) for name, part in (("base", "k0"), ("lr:action", "lrk"))}
    for agent in AGENTS:
        rig.trajectory.append([7, 8], "user", "context")
        passes = rig.sharing.begin(agent, 3)
        view = passes[-1].view
        base = rig.store.planes[KV]
        rows = [row.data_ptr() for run in view.runs for row in base.locate(run).read("k0", 1)]
        assert rows[: len(before["base"])] == before["base"]
        assert len(view.keys) >= 1
        rig.run(passes)
        rig.run(rig.sharing.end())
        rig.sharing.quiet()
        for name, part in (("base", "k0"), ("lr:action", "lrk")):
            assert addresses(rig, name, part)[: len(before[name])] == before[name]


@pytest.mark.parametrize("scheme", ["pre_lr_shared", "rebase_shared:auto"])
def test_decoding_allocates_nothing_the_size_of_the_prefix(scheme):
    """Also where the base path's rows ride along: its keys of the prefix were made in the prefill."""
    model, folders = keyed("qwen3", scheme)
    rig = Rig(model.bfloat16(), folders, scheme, segment_slots=4096)
    prefix = 1500
    for agent in ("plan", "action"):
        rig.trajectory.append([index % 211 for index in range(prefix // 2)], "user", "context")
        rig.run(rig.sharing.begin(agent, 8))
        if agent == "plan":
            rig.run(rig.sharing.end())
            rig.sharing.quiet()
    rig.trajectory.append([5], "action", "generated")
    passes = [*rig.sharing.feed(), *rig.sharing.ride(1)]
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        rig.run(passes)
    largest = max(event.self_cpu_memory_usage for event in profile.events())
    assert 0 < largest < 2 * 4 * prefix  # one layer's column in bf16


def test_an_aborted_turn_frees_its_keys():
    model, folders = keyed("qwen3", "rebase_shared:db")
    rig = Rig(model, folders, "rebase_shared:db")
    rig.turn("plan", [1, 2, 3], [4, 5])
    held = rig.store.held_bytes
    rig.trajectory.append([6, 7], "user", "context")
    before = rig.trajectory.copy()
    rig.run(rig.sharing.begin("action", 9))
    assert rig.store.planes[KEYS].pool.num_held > 0
    rig.sharing.abort()
    rig.trajectory.restore(before)
    assert rig.store.held_bytes == held
    assert rig.store.planes[KEYS].pool.num_held == 0
    rig.store.check_integrity()
