"""Oracle 0: every scheme equals its dense definition, logits of every call and every cache (SCHEMES.md, 6)."""

from itertools import product

import pytest
import torch

from tests.models import AGENTS, FAMILIES, make, random_turns
from tests.reference.dense import dense_model
from tests.reference.held import assert_close, assert_holds, held
from tests.reference.registry import REFERENCES
from tests.rig import Rig

QKVO = ("q_proj", "k_proj", "v_proj", "o_proj")
FACTORED = ("base_shared", "base_lr_shared", "pre_lr_shared", "rebase_shared")
"""Schemes that keep the adapters' terms of keys and values apart."""

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


def compare_caches(rig, reference):
    """All that the two hold once nothing is owed."""
    rig.settle()
    reference.settle()
    assert_holds(reference, rig.sharing, rig.store.planes)
    for name, parts in held(reference).items():
        assert {len(rows) for rows in parts.values()} <= {rig.sharing.tapes[name].end}, name


@by_family(FAMILIES)
def test_engine_passes_equal_the_dense_definition(family, scheme):
    model, folders = make(family, shared_a=scheme == "base_lr_shared")
    preamble = [5, 9, 9, 13, 2, 77, 101]
    rig = Rig(model, folders, scheme, preamble=preamble, chunk=None)
    reference = REFERENCES[scheme](dense_model(model, folders), AGENTS, preamble)
    for index, (agent, context, forced) in enumerate(random_turns(seed=3)):
        assert_close(rig.turn(agent, context, forced), reference.turn(agent, context, forced), f"turn {index} {agent}")
    compare_caches(rig, reference)


@pytest.mark.parametrize("scheme", REFERENCES)
@pytest.mark.parametrize("chunk", [4, *(pytest.param(size, marks=pytest.mark.slow) for size in (1, 11))])
def test_chunks_of_any_size_leave_the_same_caches(scheme, chunk):
    model, folders = make("mistral-window", shared_a=scheme == "base_lr_shared")
    rig = Rig(model, folders, scheme, preamble=[3, 1, 4], chunk=chunk, segment_slots=16)
    reference = REFERENCES[scheme](dense_model(model, folders), AGENTS, [3, 1, 4])
    for agent, context, forced in random_turns(seed=11, count=6):
        assert_close(rig.turn(agent, context, forced), reference.turn(agent, context, forced), agent)
    compare_caches(rig, reference)


@pytest.mark.parametrize("scheme", REFERENCES)
def test_adapters_on_every_projection_but_the_key(scheme):
    targets = ("q_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
    model, folders = make("qwen3", targets=targets, r=3, shared_a=scheme == "base_lr_shared")
    rig = Rig(model, folders, scheme)
    reference = REFERENCES[scheme](dense_model(model, folders), AGENTS)
    for agent, context, forced in random_turns(seed=5):
        assert_close(rig.turn(agent, context, forced), reference.turn(agent, context, forced), agent)
    compare_caches(rig, reference)


@by_family(["llama", "qwen2", "qwen3", "smollm3", "mistral-window"])
def test_adapters_on_the_key_too(family, scheme):
    """RoPE, a norm, a bias, layers without RoPE, windows; and a role without an adapter."""
    model, folders = make(family, targets=QKVO, shared_a=scheme == "base_lr_shared")
    rig = Rig(model, folders, scheme, preamble=[1, 2, 3])
    reference = REFERENCES[scheme](dense_model(model, folders), AGENTS, [1, 2, 3])
    for agent, context, forced in random_turns(seed=6, agents=("plan", "action", "", "reflect")):
        assert_close(rig.turn(agent, context, forced), reference.turn(agent, context, forced), agent)
    compare_caches(rig, reference)


@pytest.mark.parametrize("scheme", [name for name in REFERENCES if name.startswith(FACTORED)])
@pytest.mark.parametrize("chunk", [1, 5])
def test_adapters_on_the_key_in_chunks_of_any_size(chunk, scheme):
    model, folders = make("qwen3", targets=QKVO, shared_a=scheme == "base_lr_shared")
    rig = Rig(model, folders, scheme, preamble=[3, 1, 4], chunk=chunk, segment_slots=16)
    reference = REFERENCES[scheme](dense_model(model, folders), AGENTS, [3, 1, 4])
    for agent, context, forced in random_turns(seed=17, count=6):
        assert_close(rig.turn(agent, context, forced), reference.turn(agent, context, forced), agent)
    compare_caches(rig, reference)


@pytest.mark.parametrize("scheme", REFERENCES)
def test_a_role_without_an_adapter_takes_part(scheme):
    model, folders = make("llama", shared_a=scheme == "base_lr_shared")
    rig = Rig(model, folders, scheme)
    reference = REFERENCES[scheme](dense_model(model, folders), AGENTS)
    for agent, context, forced in random_turns(seed=8, agents=("plan", "", "action", "reflect")):
        assert_close(rig.turn(agent, context, forced), reference.turn(agent, context, forced), agent)
    compare_caches(rig, reference)


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
