"""Oracle 0: every scheme equals its dense definition, logits of every call and every cache (SCHEMES.md, 6)."""

from itertools import product

import pytest
import torch

from tests.models import AGENTS, FAMILIES, make, random_turns
from tests.reference.dense import dense_model
from tests.reference.registry import REFERENCES
from tests.reference.selective import Selective
from tests.rig import Rig

QKVO = ("q_proj", "k_proj", "v_proj", "o_proj")
FACTORED = ("base_shared", "base_lr_shared", "pre_lr_shared", "rebase_shared")
"""Schemes that keep the adapters' terms of keys and values apart."""

TOLERANCE = 2e-5
"""fp32, relative to the largest value: sums in another order, nothing else."""


FIRST = set({name.split(":")[0]: name for name in reversed(REFERENCES)}.values())
"""Each scheme with the options named first."""


def by_family(families):
    """The grid of families and schemes; other options than a scheme's first are slow but for the first family."""
    first, *_ = families
    return pytest.mark.parametrize(
        ("family", "scheme"),
        [
            pytest.param(family, scheme, marks=[] if family == first or scheme in FIRST else pytest.mark.slow)
            for family, scheme in product(families, REFERENCES)
        ],
    )


def assert_close(ours, reference, what):
    assert ours.shape == reference.shape, what
    error = (ours - reference).abs().max() / reference.abs().max()
    assert error < TOLERANCE, f"{what}: {error:.2e}"


def compare_caches(rig, reference, scheme, agents=AGENTS):
    rig.settle()
    reference.settle()
    layers = range(reference.model.num_layers)
    length = len(rig.trajectory) - 1
    if isinstance(reference, Selective):
        compare_repairs(rig, reference)
        return
    if scheme in ("non_shared", "full_shared", "own_kv", "neutral_prefix:native", "neutral_prefix:early"):
        owners = ["shared"] if scheme == "full_shared" else agents
        for owner in (o for o in owners if ("k", 0, o) in reference.caches):
            tapes = ["base", f"own:{owner}"] if scheme == "neutral_prefix:early" else [owner]
            for layer in layers:
                for part in ("k", "v"):
                    dense = [rig.dense(tape, part, layer) for tape in tapes if tape in rig.sharing.tapes]
                    rows = torch.cat([each for each in dense if each is not None])
                    assert_close(rows, reference.caches[part, layer, owner], (owner, part))
        return
    for layer in layers:
        for part in held_parts(rig):
            dense = rig.dense("base", part, layer)
            assert len(dense) == length
            assert_close(dense, base_cache(reference, part, layer), (part, layer))
        for part, agent in product(("lr", "lrk"), agents):
            if (part, layer, agent) in reference.caches:
                column = rig.dense(f"lr:{agent}", part, layer)
                expected = reference.caches[part, layer, agent]
                assert_close(column[:, : expected.shape[1]], expected, (part, agent, layer))


def held_parts(rig):
    return [part.name for part in rig.store.planes["kv"].spec.parts]


def base_cache(reference, part, layer):
    """Definitions with columns hold keys before RoPE; without key terms the engine holds them after it."""
    if part == "k" and ("k0", layer) in reference.caches:
        return reference.model.keys("", layer, reference.caches["k0", layer])
    return reference.caches[part, layer]


def compare_repairs(rig, reference):
    """The shared cache, and every agent's own rows: which positions they are of, and what they hold."""
    found = {}
    for layer in range(reference.model.num_layers):
        for part in ("k", "v"):
            assert_close(rig.dense("shared", part, layer), reference.caches[part, layer, "shared"], (part, layer))
        for name, places in rig.sharing._places.items():
            plane, agent = name.split("/")
            positions = torch.cat([each.positions for each in places])
            if layer in rig.store.planes[plane].spec.layers and len(positions):
                rows = reference.repaired[agent, layer]
                found[agent, layer] = positions.tolist()
                for index, part in enumerate(("k", "v")):
                    want = torch.stack([rows[position][index] for position in positions.tolist()])
                    assert_close(rig.dense(name, part, layer), want, (name, part, layer))
    assert found == {key: sorted(rows) for key, rows in reference.repaired.items() if rows}


@by_family(FAMILIES)
def test_engine_passes_equal_the_dense_definition(family, scheme):
    model, folders = make(family, shared_a=scheme == "base_lr_shared")
    preamble = [5, 9, 9, 13, 2, 77, 101]
    rig = Rig(model, folders, scheme, preamble=preamble, chunk=None)
    reference = REFERENCES[scheme](dense_model(model, folders), AGENTS, preamble)
    for index, (agent, context, forced) in enumerate(random_turns(seed=3)):
        assert_close(rig.turn(agent, context, forced), reference.turn(agent, context, forced), f"turn {index} {agent}")
    compare_caches(rig, reference, scheme)


@pytest.mark.parametrize("scheme", REFERENCES)
@pytest.mark.parametrize("chunk", [4, *(pytest.param(size, marks=pytest.mark.slow) for size in (1, 11))])
def test_chunks_of_any_size_leave_the_same_caches(scheme, chunk):
    model, folders = make("mistral-window", shared_a=scheme == "base_lr_shared")
    rig = Rig(model, folders, scheme, preamble=[3, 1, 4], chunk=chunk, segment_slots=16)
    reference = REFERENCES[scheme](dense_model(model, folders), AGENTS, [3, 1, 4])
    for agent, context, forced in random_turns(seed=11, count=6):
        assert_close(rig.turn(agent, context, forced), reference.turn(agent, context, forced), agent)
    compare_caches(rig, reference, scheme)


@pytest.mark.parametrize("scheme", REFERENCES)
def test_adapters_on_every_projection_but_the_key(scheme):
    targets = ("q_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
    model, folders = make("qwen3", targets=targets, r=3, shared_a=scheme == "base_lr_shared")
    rig = Rig(model, folders, scheme)
    reference = REFERENCES[scheme](dense_model(model, folders), AGENTS)
    for agent, context, forced in random_turns(seed=5):
        assert_close(rig.turn(agent, context, forced), reference.turn(agent, context, forced), agent)
    compare_caches(rig, reference, scheme)


@by_family(["llama", "qwen2", "qwen3", "smollm3", "mistral-window"])
def test_adapters_on_the_key_too(family, scheme):
    """RoPE, a norm, a bias, layers without RoPE, windows; and a role without an adapter."""
    model, folders = make(family, targets=QKVO, shared_a=scheme == "base_lr_shared")
    rig = Rig(model, folders, scheme, preamble=[1, 2, 3])
    reference = REFERENCES[scheme](dense_model(model, folders), AGENTS, [1, 2, 3])
    for agent, context, forced in random_turns(seed=6, agents=("plan", "action", "", "reflect")):
        assert_close(rig.turn(agent, context, forced), reference.turn(agent, context, forced), agent)
    compare_caches(rig, reference, scheme, agents=(*AGENTS, ""))


@pytest.mark.parametrize("scheme", [name for name in REFERENCES if name.startswith(FACTORED)])
@pytest.mark.parametrize("chunk", [1, 5])
def test_adapters_on_the_key_in_chunks_of_any_size(chunk, scheme):
    model, folders = make("qwen3", targets=QKVO, shared_a=scheme == "base_lr_shared")
    rig = Rig(model, folders, scheme, preamble=[3, 1, 4], chunk=chunk, segment_slots=16)
    reference = REFERENCES[scheme](dense_model(model, folders), AGENTS, [3, 1, 4])
    for agent, context, forced in random_turns(seed=17, count=6):
        assert_close(rig.turn(agent, context, forced), reference.turn(agent, context, forced), agent)
    compare_caches(rig, reference, scheme)


@pytest.mark.parametrize("scheme", REFERENCES)
def test_a_role_without_an_adapter_takes_part(scheme):
    model, folders = make("llama", shared_a=scheme == "base_lr_shared")
    rig = Rig(model, folders, scheme)
    reference = REFERENCES[scheme](dense_model(model, folders), AGENTS)
    for agent, context, forced in random_turns(seed=8, agents=("plan", "", "action", "reflect")):
        assert_close(rig.turn(agent, context, forced), reference.turn(agent, context, forced), agent)
    compare_caches(rig, reference, scheme)


def test_the_reference_itself_equals_transformers_and_peft():
    model, folders = make("qwen3")
    dense = dense_model(model, folders)
    ids = [7, 3, 19, 150, 22, 8]
    ours = REFERENCES["non_shared"](dense, AGENTS)
    got = ours.turn("action", ids, [4])
    dense.peft_model.set_adapter("action")
    with torch.no_grad():
        want = dense.peft_model(input_ids=torch.tensor([ids])).logits[0, -1:]
    assert_close(got, want, "first turn")
