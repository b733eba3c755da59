"""Invariants 4.1 and 4.2 of DESIGN.md and oracles 2, 3, 4, 6 and 12 of SCHEMES.md, on tiny models in fp32."""

import copy
import shutil

import pytest
import torch

from agentrt.schemes import SCHEMES
from tests.models import AGENTS, FAMILIES, every_family, make, random_turns
from tests.reference.dense import DenseModel, dense_model
from tests.reference.held import assert_close
from tests.rig import Rig

NAMED = {"rebase_shared": "rebase_shared:lp", "neutral_prefix": "neutral_prefix:question"}
"""Every schedule has the one definition."""

PLAIN = [name for name, scheme in SCHEMES.items() if not scheme.activated and name != "ridge"]
"""Schemes that take any adapters and need no fitted file; the others have tests of their own."""


def stock_logits(model, ids):
    with torch.no_grad():
        return model(input_ids=torch.tensor([ids])).logits[0]


def peft_logits(dense, agent, ids):
    dense.peft_model.set_adapter(agent)
    with torch.no_grad():
        return dense.peft_model(input_ids=torch.tensor([ids])).logits[0]


def rows_of(ids, turn_start, context, forced, logits):
    first = turn_start + len(context) - 1
    return logits[first : first + len(forced)]


@pytest.mark.parametrize("scheme", PLAIN)
@every_family
def test_with_b_zero_every_scheme_is_the_stock_model(scheme, family):
    model, folders = make(family, zero_b=True, shared_a=scheme == "base_lr_shared")
    rig = Rig(model, folders, scheme)
    for agent, context, forced in random_turns(seed=1):
        start = len(rig.trajectory)
        got = rig.turn(agent, context, forced)
        ids = rig.trajectory.token_ids
        assert_close(got, rows_of(ids, start, context, forced, stock_logits(model, ids)), agent)


@pytest.mark.parametrize(
    "scheme",
    [
        "non_shared",
        "full_shared",
        "base_shared",
        "base_lr_shared",
        "pre_lr_shared",
        "own_kv",
        "neutral_prefix:native",
        "rebase_shared:lp,lp_at=handover",
        "rebase_shared:auto,pivot=action",
        "droidspeak",
        "droidspeak_scattered:layers=0+2",
        "cacheblend",
        "relay_caching",
    ],
)
@every_family
def test_with_one_agent_a_scheme_is_transformers_and_peft(scheme, family):
    model, folders = make(family, shared_a=scheme == "base_lr_shared")
    rig = Rig(model, folders, scheme)
    dense = dense_model(model, folders)
    for _, context, forced in random_turns(seed=2):
        start = len(rig.trajectory)
        got = rig.turn("action", context, forced)
        ids = rig.trajectory.token_ids
        assert_close(got, rows_of(ids, start, context, forced, peft_logits(dense, "action", ids)), start)


@pytest.mark.parametrize("family", FAMILIES)
def test_rebase_shared_is_transformers_and_peft_in_its_first_turn(family):
    model, folders = make(family)
    rig = Rig(model, folders, "rebase_shared")
    ids, forced = [3, 99, 17, 4, 4, 180, 23], [8, 1, 60]
    got = rig.turn("reflect", ids, forced)
    dense = dense_model(model, folders)
    assert_close(got, peft_logits(dense, "reflect", ids + forced[:2])[len(ids) - 1 :], family)


@pytest.mark.parametrize("family", FAMILIES)
def test_non_shared_is_transformers_and_peft_for_every_agent(family):
    model, folders = make(family)
    rig = Rig(model, folders, "non_shared", preamble=[1, 2, 3])
    dense = dense_model(model, folders)
    for agent, context, forced in random_turns(seed=4, count=9):
        start = len(rig.trajectory)
        got = rig.turn(agent, context, forced)
        ids = rig.trajectory.token_ids
        assert_close(got, rows_of(ids, start, context, forced, peft_logits(dense, agent, ids)), agent)


@pytest.mark.parametrize(
    "scheme",
    [
        "full_shared",
        "base_lr_shared",
        "pre_lr_shared",
        "droidspeak:layers=0-1",
        "droidspeak_scattered:layers=0+2",
        "cacheblend:ratio=0",
        "cacheblend",
        "cacheblend:ratio=0.9",
        "relay_caching:ratio=0",
        "relay_caching:layers=0-2,ratio=0.9",
    ],
)
def test_identical_weights_under_three_names_equal_non_shared(tmp_path, scheme):
    model, folders = make()
    same = {agent: shutil.copytree(folders["plan"], tmp_path / agent) for agent in AGENTS}
    ours, exact = Rig(model, same, scheme), Rig(model, same, "non_shared")
    for agent, context, forced in random_turns(seed=5):
        assert_close(ours.turn(agent, context, forced), exact.turn(agent, context, forced), agent)


def test_pre_lr_shared_deposits_every_column_from_the_speakers_states():
    model, folders = make()
    shared, exact = Rig(model, folders, "pre_lr_shared"), Rig(model, folders, "non_shared")
    shared.turn("plan", [5, 6, 7, 8, 9], [1, 2, 3])
    exact.turn("plan", [5, 6, 7, 8, 9], [1, 2, 3])
    hidden = capture_value_inputs(copy.deepcopy(model), folders, "plan", [5, 6, 7, 8, 9, 1, 2])
    for layer in range(3):
        assert_close(shared.dense("base", "k", layer), exact.dense("plan", "k", layer), layer)
        for agent in AGENTS:
            a = shared.adapters.value_down(agent, layer)
            assert_close(shared.dense(f"lr:{agent}", "lr", layer), hidden[layer] @ a, (agent, layer))


def test_rebase_shared_holds_a_plain_adapter_free_cache():
    model, folders = make("qwen3")
    rig = Rig(model, folders, "rebase_shared", preamble=[2, 4, 6])
    turns = random_turns(seed=6)
    for agent, context, forced in turns:
        rig.turn(agent, context, forced)
    rig.settle()
    ids = rig.trajectory.token_ids[: rig.trajectory.num_processed]
    hidden = capture_value_inputs(copy.deepcopy(model), folders, "", ids)
    plain = Rig(model, folders, "non_shared")
    plain.turn("", ids, [0])
    for layer in range(3):
        for part in ("k", "v"):
            assert_close(rig.dense("base", part, layer), plain.dense("", part, layer), (part, layer))
        for agent in AGENTS:
            neutral = hidden[layer] @ rig.adapters.value_down(agent, layer)
            column = rig.dense(f"lr:{agent}", "lr", layer)
            for processed in rig.trajectory.processed:
                span = slice(processed.start, processed.end)
                if processed.path != agent:
                    assert_close(column[span], neutral[span], (agent, layer, processed))
                elif layer:
                    assert not torch.allclose(column[span], neutral[span], atol=1e-3), "own column is adapted"


def test_processing_path_differs_from_author_at_turn_boundaries():
    model, folders = make()
    rig = Rig(model, folders, "rebase_shared")
    rig.turn("plan", [1, 2], [3, 4])
    rig.turn("action", [5], [6])
    assert [(s.start, s.end, s.author) for s in rig.trajectory.spans if s.kind == "generated"] == [
        (2, 3, "plan"),
        (3, 4, "plan"),
        (5, 6, "action"),
    ]
    assert [tuple(p) for p in rig.trajectory.processed] == [(0, 3, "plan"), (3, 5, "action")]


@pytest.mark.parametrize("scheme", PLAIN)
@pytest.mark.parametrize(
    "options",
    [
        {"r": 4, "alpha": 12},
        {"r": 4, "alpha": 12, "use_rslora": True},
        {"r": 3, "alpha": 7, "rank_pattern": {"layers.1.self_attn.v_proj": 6}, "alpha_pattern": {"v_proj": 5}},
        {"r": 5, "alpha": 2, "layers_to_transform": [0, 2]},
    ],
    ids=["alpha", "rslora", "patterns", "some layers"],
)
def test_scaling_is_applied_once_per_layer(scheme, options):
    """First turn against peft, then a handover against the dense definition."""
    from tests.reference.registry import REFERENCES

    model, folders = make("qwen2", shared_a=scheme == "base_lr_shared", **options)
    rig = Rig(model, folders, scheme)
    dense = dense_model(model, folders)
    reference = REFERENCES[NAMED.get(scheme, scheme)](dense, AGENTS)
    for index, (agent, context, forced) in enumerate(random_turns(seed=9, count=4)):
        got = rig.turn(agent, context, forced)
        assert_close(got, reference.turn(agent, context, forced), agent)
        if index == 0:
            ids = rig.trajectory.token_ids
            assert_close(got, rows_of(ids, 0, context, forced, peft_logits(dense, agent, ids)), "peft")


@pytest.mark.parametrize("scheme", [name for name in PLAIN if name != "base_lr_shared"])
def test_adapters_with_different_targets_and_ranks(tmp_path, scheme):
    from agentrt.model.tiny import tiny_adapter
    from tests.reference.registry import REFERENCES

    model, _ = make("llama")
    folders = {
        "plan": tiny_adapter(model, tmp_path / "a", r=2, targets=["q_proj"], seed=1),
        "action": tiny_adapter(model, tmp_path / "b", r=7, targets=["v_proj", "o_proj"], seed=2),
        "reflect": tiny_adapter(model, tmp_path / "c", r=3, targets=["q_proj", "v_proj", "down_proj"], seed=3),
    }
    rig = Rig(model, folders, scheme)
    reference = REFERENCES[NAMED.get(scheme, scheme)](dense_model(model, folders), AGENTS)
    for agent, context, forced in random_turns(seed=10):
        assert_close(rig.turn(agent, context, forced), reference.turn(agent, context, forced), agent)


@pytest.mark.parametrize("scheme", [*PLAIN, "rebase_shared:db", "neutral_prefix:question,schedule=db"])
def test_bytes_held_equal_the_formula(scheme):
    """SCHEMES.md section 8, byte for byte, after every turn and inside one.

    A private tail costs memory only where the base path works beside it: afterwards, it takes the tail's place.
    For the selective schemes the middle one of three layers is the middle third.
    """
    model, folders = make(r=4, shared_a=scheme == "base_lr_shared")
    scheme = NAMED.get(scheme, scheme)
    rig = Rig(model, folders, scheme)
    layers, kv_heads, d, e, rank = 3, 2, 8, 4, 4
    kv, lr, state = 2 * layers * kv_heads * d * e, layers * 3 * rank * e, 48 * e
    layer_kv = kv // layers
    unread, kept = dict.fromkeys(AGENTS, 0), dict.fromkeys(AGENTS, 0)
    kept_tail = 0
    seen = dict.fromkeys(AGENTS, 0)
    for agent, context, forced in random_turns(seed=12):
        start = rig.trajectory.num_processed
        new = start - seen[agent]
        unread[agent] += new
        kept[agent] += int(0.3 * new)
        kept_tail += max(int(0.3 * new), min(10, new))
        rig.store.reset_peak()
        rig.turn(agent, context, forced)
        total = rig.trajectory.num_processed
        seen[agent] = total
        expected = {
            "non_shared": sum(seen.values()) * kv,
            "full_shared": total * kv,
            "base_shared": total * kv + sum(seen.values()) * lr // 3,
            "base_lr_shared": total * (kv + lr // 3),
            "pre_lr_shared": total * (kv + lr),
            "rebase_shared:lp": total * (kv + lr),
            "own_kv": sum(seen.values()) * kv,
            "neutral_prefix:question": total * kv,
            "neutral_prefix:question,schedule=db": total * kv,
            "rebase_shared:db": total * (kv + lr),
            "droidspeak": total * (kv + state) + sum(unread.values()) * layer_kv,
            "droidspeak_scattered": total * (kv + state) + sum(unread.values()) * layer_kv,
            "cacheblend": total * kv + (2 * sum(unread.values()) + sum(kept.values())) * layer_kv,
            "relay_caching": total * kv + kept_tail * layer_kv,
        }[scheme]
        assert rig.store.held_bytes == expected
        private = (total - start) * kv if scheme.endswith("db") else 0
        private = new * state if scheme in ("cacheblend", "relay_caching") else private
        assert rig.store.peak_bytes == expected + private


def test_a_pivot_reads_what_it_would_have_computed_itself():
    """Its logits are non_shared's, and the base is its own forward over all ids."""
    model, folders = make("qwen3")
    ours, exact = Rig(model, folders, "rebase_shared:auto,pivot=plan"), Rig(model, folders, "non_shared")
    for agent, context, forced in random_turns(seed=13, count=8):
        got, want = ours.turn(agent, context, forced), exact.turn(agent, context, forced)
        if agent == "plan":
            assert_close(got, want, agent)
    ours.settle()
    exact.turn("plan", [1], [2])
    hidden = capture_value_inputs(copy.deepcopy(model), folders, "plan", ours.trajectory.token_ids[:-1])
    for layer in range(3):
        length = len(ours.dense("base", "k", layer))
        assert_close(ours.dense("base", "k", layer), exact.dense("plan", "k", layer)[:length], layer)
        plan = ours.adapters.value_down("plan", layer)
        assert_close(ours.dense("lr:plan", "lr", layer), hidden[layer][:length] @ plan, layer)


@pytest.mark.parametrize("schedule", ["lp", "db", "fused", "auto"])
def test_a_tail_as_long_as_the_context_is_all_of_it(schedule):
    model, folders = make()
    whole, tail = (Rig(model, folders, f"rebase_shared:{schedule}{more}") for more in ("", ",adapted_tail=99"))
    for agent, context, forced in random_turns(seed=14):
        assert_close(tail.turn(agent, context, forced), whole.turn(agent, context, forced), agent)


@pytest.mark.parametrize(
    ("scheme", "read"),
    [("lp", 36), ("db", 36), ("fused", 36), ("auto", 36), ("lp,adapted_tail=4", 12), ("auto,adapted_tail=4", 12)],
)
def test_rows_run_are_the_formulas(scheme, read):
    """36 context tokens and 6 decoded ones: each decoded once, read by its speaker (or its tail is), rebuilt once."""
    model, folders = make()
    rig = Rig(model, folders, f"rebase_shared:{scheme}")
    for agent, context in (("plan", 20), ("action", 9), ("plan", 7)):
        rig.turn(agent, [1] * context, [2, 2, 2])  # feeds two of the three; the third waits for the next turn
        rig.trajectory.crop(rig.trajectory.num_processed)
    rig.settle()
    assert rig.rows["plan"] + rig.rows["action"] == read + 6
    assert rig.rows[""] == 36 + 6


def capture_value_inputs(model, folders, path, ids):
    """The input of every layer's v_proj in a plain forward of `path` (adapters off where empty)."""
    dense = DenseModel(model, folders)
    seen = {}

    def cache(layer, k, v0, x):
        seen[layer] = x
        if path:
            v0 = v0 + dense.value_term(path, layer, x @ dense.value_a(path, layer).T)
        return k, v0

    dense.forward(path, ids, 0, cache)
    return seen


@pytest.mark.parametrize("scheme", ["base_shared", "pre_lr_shared", "rebase_shared", "droidspeak", "cacheblend"])
def test_roles_may_have_any_names(scheme):
    """ "base", "private", "shared" and "states" are names of tapes too."""
    model, folders = make()
    selective = scheme in ("droidspeak", "cacheblend")
    tapes = ("shared", "states", "kept/plan") if selective else ("base", "private", "stale")
    names = dict(zip(AGENTS, tapes, strict=True))
    ours = Rig(model, folders, scheme)
    renamed = Rig(model, {names[agent]: folder for agent, folder in folders.items()}, scheme)
    for agent, context, forced in random_turns(seed=15):
        assert torch.equal(ours.turn(agent, context, forced), renamed.turn(names[agent], context, forced))
