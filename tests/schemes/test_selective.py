"""Selective recomputation against what its ends are known to be, and what a choice may depend on (oracles 2 and 8)."""

import random

import pytest
import torch

from agentrt.cache.places import Places
from agentrt.model.tiny import tiny_adapter, tiny_model
from agentrt.schemes.cacheblend import value_change
from agentrt.schemes.relay_caching import deviation_or_influence
from agentrt.step import Reused
from tests.models import AGENTS, make, random_turns
from tests.reference.dense import dense_model
from tests.reference.held import assert_close
from tests.reference.selective import CacheBlend, DroidSpeak, RelayCaching
from tests.rig import Rig
from tests.schemes.test_dense_reference import compare_caches

QV = ("q_proj", "v_proj")
QKVO = ("q_proj", "k_proj", "v_proj", "o_proj")
FAMILIES = ("llama", "qwen2", "qwen3", "mistral-window")

EMPTY = ["droidspeak:layers=none", "droidspeak_scattered:layers=none", "relay_caching:layers=none"]
WHOLE = [
    "droidspeak:layers=all",
    "droidspeak_scattered:layers=all",
    "cacheblend:ratio=1",
    "relay_caching:layers=all,ratio=1",
    "relay_caching:layers=all,detect=0,ratio=1.0",
    "relay_caching:layers=0-2,detect=2,ratio=1",
]


each_adapter = pytest.mark.parametrize("targets", [QV, QKVO], ids=["qv", "qkvo"])


@each_adapter
@pytest.mark.parametrize("scheme", EMPTY)
@pytest.mark.parametrize("family", FAMILIES)
def test_without_layers_a_scheme_is_full_shared(family, scheme, targets):
    model, folders = make(family, targets=targets)
    ours, full = Rig(model, folders, scheme), Rig(model, folders, "full_shared")
    for turn in random_turns(seed=21):
        assert torch.equal(ours.turn(*turn), full.turn(*turn))
    assert ours.store.held_bytes == full.store.held_bytes


@each_adapter
@pytest.mark.parametrize("scheme", WHOLE)
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("chunk", [None, pytest.param(5, marks=pytest.mark.slow)])
def test_everything_computed_again_is_non_shared(family, scheme, chunk, targets):
    model, folders = make(family, targets=targets)
    ours, exact = Rig(model, folders, scheme, chunk=chunk), Rig(model, folders, "non_shared")
    for agent, context, forced in random_turns(seed=22):
        assert_close(ours.turn(agent, context, forced), exact.turn(agent, context, forced), agent)


@each_adapter
@pytest.mark.parametrize("family", FAMILIES)
def test_cacheblend_at_ratio_zero_recomputes_the_first_two_layers(family, targets):
    model, folders = make(family, targets=targets)
    ours, two = Rig(model, folders, "cacheblend:ratio=0"), Rig(model, folders, "droidspeak:layers=0-1")
    for agent, context, forced in random_turns(seed=23):
        assert_close(ours.turn(agent, context, forced), two.turn(agent, context, forced), agent)


DEEP = {
    "droidspeak": (DroidSpeak, {"layers": (2, 3)}),
    "droidspeak:layers=3-5": (DroidSpeak, {"layers": (3, 4, 5)}),
    "droidspeak_scattered:layers=spread": (DroidSpeak, {"layers": (0, 3)}),
    "droidspeak_scattered:layers=1+3-4": (DroidSpeak, {"layers": (1, 3, 4)}),
    "cacheblend:ratio=0.45": (CacheBlend, {"ratio": 0.45}),
    "relay_caching:layers=1-4,detect=3,ratio=0.6": (RelayCaching, {"first": 1, "last": 4, "detect": 3, "ratio": 0.6}),
    "relay_caching:ratio=0.5": (RelayCaching, {"first": 2, "last": 3, "detect": 3, "ratio": 0.5}),
}
"""Six layers: the scheme and its definition."""


@pytest.fixture(scope="module")
def deep(tmp_path_factory):
    model = tiny_model("mistral", layers=6, sliding_window=19)
    folder = tmp_path_factory.mktemp("deep")
    folders = {
        agent: tiny_adapter(model, folder / agent, targets=QKVO, seed=seed) for seed, agent in enumerate(AGENTS, 1)
    }
    return model, folders


@pytest.mark.parametrize("scheme", DEEP)
@pytest.mark.parametrize("chunk", [None, 1, 7])
def test_six_layers_with_key_adapters_and_a_window(deep, scheme, chunk):
    model, folders = deep
    kind, options = DEEP[scheme]
    rig = Rig(model, folders, scheme, preamble=[9, 8, 7], chunk=chunk, segment_slots=16)
    reference = kind(dense_model(model, folders), AGENTS, [9, 8, 7], **options)
    for agent, context, forced in random_turns(seed=24, count=8):
        assert_close(rig.turn(agent, context, forced), reference.turn(agent, context, forced), agent)
    compare_caches(rig, reference)


@pytest.mark.parametrize("scheme", ["droidspeak:layers=3-5", "cacheblend:ratio=0.45", "relay_caching:ratio=0.5"])
@pytest.mark.parametrize("chunk", [None, 70])
def test_long_stretches_of_replaced_rows(deep, scheme, chunk):
    """So long that they are left out rather than hidden, in pieces that end where segments do."""
    model, folders = deep
    kind, options = DEEP[scheme]
    rig = Rig(model, folders, scheme, chunk=chunk, segment_slots=64)
    reference = kind(dense_model(model, folders), AGENTS, **options)
    rng = random.Random(3)
    for agent, size in (("plan", 90), ("action", 80), ("plan", 7), ("action", 71), ("plan", 5)):
        context, forced = ([rng.randrange(211) for _ in range(count)] for count in (size, 3))
        assert_close(rig.turn(agent, context, forced), reference.turn(agent, context, forced), agent)
    compare_caches(rig, reference)


@pytest.mark.parametrize("count", [4, 5, 7])
def test_one_or_two_chosen_tokens_do_not_see_what_follows_them(deep, count):
    """One row alone is no decoded token: keys lie behind it."""
    model, folders = deep
    rig = Rig(model, folders, "cacheblend")
    reference = CacheBlend(dense_model(model, folders), AGENTS)
    for agent, context in (("plan", list(range(30, 30 + count))), ("action", [5]), ("reflect", [6, 7]), ("plan", [8])):
        assert_close(rig.turn(agent, context, [9, 10]), reference.turn(agent, context, [9, 10]), agent)
    compare_caches(rig, reference)


def test_a_chosen_token_sees_all_before_it_and_none_after():
    """The mask of queries that skip tokens: when later tokens change, the rows of a chosen one stay what they were."""
    model, folders = make("llama")
    kept = []
    for last in (5, 150):
        rig = Rig(model, folders, "cacheblend:ratio=0.5")
        rig.turn("plan", [*range(20, 50), *[last] * 10], [1, 2])
        rig.turn("action", [3], [4])
        (places,) = rig.sharing._places["kept/action"]
        rows = {part: rig.dense("kept/action", part, 2) for part in ("k", "v")}
        kept.append({int(at): (rows["k"][i], rows["v"][i]) for i, at in enumerate(places.positions)})
    early = {at for at in kept[0].keys() & kept[1].keys() if at < 30}
    assert len(early) > 3
    # layer 2's rows of a chosen token follow from layer 1, where it attends to itself and all tokens before it
    same = [torch.allclose(a, b, atol=1e-5) for at in early for a, b in zip(kept[0][at], kept[1][at], strict=True)]
    assert all(same)


def test_rows_of_the_repair_are_counted_once_a_layer():
    model, folders = make()
    for scheme, expected in {
        "droidspeak:layers=0-1": 2 * 22,
        "droidspeak_scattered:layers=0+2": 3 * 22,
        "cacheblend": 2 * 22 + 6,
        "cacheblend:ratio=0.29": 2 * 22 + 6,
        "relay_caching:layers=1-2,ratio=0.7": 3 * 22,
        "relay_caching:layers=0-2,ratio=0.7": 2 * 22 + 15,
        "relay_caching:layers=0-2": 2 * 22 + 10,
        "relay_caching:layers=0-2,detect=0": 22 + 2 * 10,
    }.items():
        rig = Rig(model, folders, scheme)
        rig.turn("plan", list(range(20)), [1, 2, 3])
        rig.trajectory.append([5], "user", "context")
        passes = rig.sharing.begin("action", 1)
        assert sum(each.num_layer_rows for each in passes if each.repairs) == expected, scheme
        assert sum(each.num_read for each in passes) == 22 + 2


def test_on_thirty_layers_the_layer_set_decides_which_scheme_repairs_more(tmp_path):
    """Rows entering a layer for each token that others wrote, as docs/schemes.md counts them by hand."""
    model = tiny_model("llama", layers=30)
    folders = {agent: tiny_adapter(model, tmp_path / agent, targets=QV, seed=seed) for seed, agent in enumerate(AGENTS)}
    for scheme, wanted in {
        "droidspeak": 10,
        "droidspeak_scattered": 10,
        "cacheblend": 10.4,
        "relay_caching": 14.4,
        "droidspeak_scattered:layers=spread": 28,
    }.items():
        rig = Rig(model, folders, scheme)
        rig.turn("plan", [token % 211 for token in range(98)], [1, 2, 3])  # the last of them is left to the next turn
        rig.trajectory.append([5], "user", "context")
        passes = rig.sharing.begin("action", 1)
        assert sum(each.num_layer_rows for each in passes if each.repairs) == round(100 * wanted), scheme


def test_a_fork_and_a_crop_keep_what_an_agent_computed_again():
    model, folders = make("qwen2")
    for scheme in ("droidspeak", "cacheblend:ratio=0.5", "relay_caching:layers=0-2"):
        ours, cropped = Rig(model, folders, scheme), Rig(model, folders, scheme)
        for turn in random_turns(seed=25, count=5):
            ours.turn(*turn)
            cropped.turn(*turn)
        length = ours.trajectory.num_processed
        held = cropped.store.held_bytes
        cropped.turn("plan", [1, 2, 3, 4, 5, 6, 7], [8, 9])
        cropped.sharing.crop(length)
        cropped.trajectory.crop(length)
        ours.trajectory.crop(length)
        assert {at: len(p) for at, p in cropped.sharing._places.items() if "plan" not in at} == {
            at: len(p) for at, p in ours.sharing._places.items() if "plan" not in at
        }
        assert cropped.store.held_bytes >= held
        for agent in ("action", "reflect"):
            assert_close(cropped.turn(agent, [4, 4], [6]), ours.turn(agent, [4, 4], [6]), (scheme, agent))
        half = length // 2
        cropped.sharing.crop(half)
        cropped.trajectory.crop(half)
        for name, places in cropped.sharing._places.items():
            assert all(int(at) < half for each in places for at in each.positions), name
            assert cropped.sharing.tapes[name].end == sum(map(len, places))
        twin = cropped.sharing.fork(cropped.trajectory.copy())
        held = cropped.store.held_bytes
        twin.close()
        assert cropped.store.held_bytes == held
        cropped.sharing.close()
        cropped.store.check_integrity()
        assert cropped.store.held_bytes == 0


def test_values_that_changed_most_score_highest():
    reused = torch.randn(9, 2, 4, generator=torch.Generator().manual_seed(0))
    values = reused[4:].clone()
    values[1] += 0.5
    values[3] -= 2.0
    score = value_change(values, values, values, Reused(reused, reused, torch.ones(5, 9, dtype=torch.bool), 1.0))
    assert score.argsort(descending=True)[:2].tolist() == [3, 1]
    assert torch.allclose(score[[3, 1, 0]], torch.tensor([4.0 * 8, 0.25 * 8, 0.0]), atol=1e-5)


def test_the_tail_is_always_kept_and_what_it_attends_to_comes_first():
    n, start = 14, 3
    generator = torch.Generator().manual_seed(0)
    reused = torch.randn(start + n, 1, 4, generator=generator)
    keys = 0.01 * torch.randn(n, 1, 4, generator=generator)
    queries = torch.zeros(n, 2, 4)
    queries[..., 0] = 8.0
    keys[2, 0, 0] = 1.0  # all queries look here
    values = reused[start:].clone()
    values[1] *= -1.0  # and this one has turned round
    visible = torch.arange(start + n)[None] <= torch.arange(start, start + n)[:, None]
    score = deviation_or_influence(queries, keys, values, Reused(reused * 0.01, reused, visible, 1.0))
    assert score[-10:].isinf().all()
    assert set(score[:4].topk(2).indices.tolist()) == {1, 2}
    same = deviation_or_influence(queries, keys, reused[start:], Reused(reused * 0.01, reused, visible, 1.0))
    assert torch.isfinite(same[:4]).all(), "nothing deviates: no division by zero"


def test_places_are_cut_where_they_are_known():
    whole = Places(3, 9, 6)
    assert whole.before(5).positions.tolist() == [3, 4]
    some = Places(3, 9, 2)
    assert not some.known
    assert some.before(12) is some
    some.settle(torch.tensor([4, 8]))
    assert some.before(8).positions.tolist() == [4]
    assert len(some.before(4)) == 0
    assert Places(3, 9, 0).known
