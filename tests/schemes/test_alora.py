"""alora against its definition without a cache and against peft's own activated LoRA (SCHEMES.md, oracle 10)."""

import copy
import functools
import random

import pytest
import torch

from agentrt.engine import Engine, EngineConfig
from agentrt.errors import SchemeError
from agentrt.model.backbone import Backbone
from agentrt.model.sampling import Sampling
from agentrt.model.tiny import tiny_adapter, tiny_model
from agentrt.schemes import SCHEMES
from agentrt.schemes.alora import last_start
from agentrt.schemes.make import make_scheme
from tests.models import AGENTS, FAMILIES, make, scratch
from tests.reference.dense import dense_model
from tests.reference.held import assert_close
from tests.reference.routekv import Alora
from tests.rig import Rig
from tests.schemes.test_invariants import peft_logits

INVOCATIONS = {"plan": (200, 201), "action": (202,), "reflect": (203, 204, 203)}
SCHEDULES = ["lp", "db", "fused", "auto"]


@functools.cache
def make_activated(family="llama", targets=("q_proj", "k_proj", "v_proj", "o_proj", "down_proj")):
    """A model and adapters on it that nobody changes."""
    model = tiny_model(**FAMILIES[family])
    folder = scratch() / "-".join(("activated", family, *targets))
    folders = {
        agent: tiny_adapter(
            model, folder / agent, targets=targets, seed=seed, alora_invocation_tokens=list(INVOCATIONS[agent])
        )
        for seed, agent in enumerate(AGENTS, 1)
    }
    return model, folders


def random_turns(seed, count=7):
    """Turns whose contexts may hold the speaker's invocation once, twice or, where it came before, not at all."""
    rng = random.Random(seed)
    turns, invoked = [], set()
    for _ in range(count):
        agent = rng.choice(AGENTS)
        context = [rng.randrange(200) for _ in range(rng.choice([1, 4, 9]))]
        for _ in range(rng.choice([0, 1, 2]) if agent in invoked else 1):
            at = rng.randrange(len(context) + 1)
            context[at:at] = INVOCATIONS[agent]
        invoked.add(agent)
        turns.append((agent, context, [rng.randrange(200) for _ in range(rng.choice([1, 3, 5]))]))
    return turns


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("family", ["llama", "qwen3", "mistral-window"])
def test_cached_equals_uncached(family, schedule):
    model, folders = make_activated(family)
    rig = Rig(model, folders, f"alora:{schedule}", preamble=[5, 9, 9])
    reference = Alora(dense_model(model, folders), AGENTS, [5, 9, 9], invocations=INVOCATIONS)
    for seed in (1, 2):
        for agent, context, forced in random_turns(seed):
            assert_close(rig.turn(agent, context, forced), reference.turn(agent, context, forced), (seed, agent))
    rig.settle()
    reference.neutral(len(rig.trajectory))
    for layer in range(3):
        for part in ("k", "v"):
            got = rig.dense("base", part, layer)
            assert_close(got, reference.caches[part, layer][: len(got)], (part, layer))


@pytest.mark.parametrize("family", FAMILIES)
def test_it_is_pefts_activated_lora_for_every_agent_at_any_point(family):
    model, folders = make_activated(family)
    rig = Rig(model, folders, "alora", preamble=[5, 9, 9])
    dense = dense_model(model, folders)
    for agent, context, forced in random_turns(seed=3, count=9):
        start = len(rig.trajectory)
        got = rig.turn(agent, context, forced)
        ids = rig.trajectory.token_ids[:-1]
        first = start + len(context) - 1
        assert_close(got, peft_logits(dense, agent, ids)[first : first + len(forced)], agent)


def test_generation_equals_pefts_own():
    model, folders = make_activated()
    dense = dense_model(model, folders)
    backbone = Backbone(copy.deepcopy(model))
    adapters = backbone.load_adapters(folders)
    with Engine(backbone, adapters, make_scheme("alora"), config=EngineConfig(poison=True, segment_slots=64)) as engine:
        session = engine.session([7, 8, 9])
        for agent, context, _ in random_turns(seed=4, count=6):
            session.append(context)
            ids = list(session.trajectory.token_ids)
            result = session.turn(agent, [], Sampling(max_new_tokens=8)).result
            dense.peft_model.set_adapter(agent)
            want = dense.peft_model.generate(
                input_ids=torch.tensor([ids]),
                attention_mask=torch.ones(1, len(ids), dtype=torch.long),
                max_new_tokens=8,
                min_new_tokens=8,
                do_sample=False,
                eos_token_id=None,
                pad_token_id=0,
            )
            assert list(result.token_ids) == want[0, len(ids) :].tolist(), agent


def test_an_invocation_inside_the_preamble_takes_over_there_and_the_preamble_stays_neutral():
    model, folders = make_activated()
    preamble = [1, 2, *INVOCATIONS["plan"], 3, 4]
    backbone = Backbone(copy.deepcopy(model))
    adapters = backbone.load_adapters(folders)
    dense = dense_model(model, folders)
    with Engine(backbone, adapters, make_scheme("alora"), config=EngineConfig(poison=True, segment_slots=64)) as engine:
        for hits in (0, 1):
            with engine.session(preamble) as session:
                tokens = session.turn("plan", [9, 8], Sampling(max_new_tokens=4)).result.token_ids
                ids = session.trajectory.token_ids
            logits = peft_logits(dense, "plan", ids)[len(preamble) + 1 : -1]
            assert list(tokens) == logits.argmax(-1).tolist()
            (use,) = engine.stats().preambles
            assert (use.path, use.hits, use.misses) == ("", hits, 1)


def test_bytes_held_are_one_cache_and_during_a_turn_what_the_adapter_reads_again():
    model, folders = make_activated()
    rig = Rig(model, folders, "alora")
    kv = rig.store.planes["kv"].spec.row_bytes
    for agent, context, forced in random_turns(seed=5):
        rig.store.reset_peak()
        before = rig.trajectory.num_processed
        rig.turn(agent, context, forced)
        total = rig.trajectory.num_processed
        begin = last_start(rig.trajectory.token_ids[: total + 1 - len(forced)], INVOCATIONS[agent])
        assert rig.store.held_bytes == total * kv
        again = total - begin if begin < before else 0  # else the adapter's rows lie where the neutral ones will
        assert rig.store.peak_bytes == (total + again) * kv


def test_a_context_without_an_invocation_is_refused_and_the_session_goes_on():
    model, folders = make_activated()
    backbone = Backbone(copy.deepcopy(model))
    adapters = backbone.load_adapters(folders)
    with Engine(backbone, adapters, make_scheme("alora"), config=EngineConfig(segment_slots=64)) as engine:
        session = engine.session()
        with pytest.raises(
            SchemeError,
            match=r"no invocation of adapter 'plan' in the context of 4 tokens.*\[200, 201\] before its turn",
        ):
            session.turn("plan", [1, 200, 2, 201], Sampling(max_new_tokens=2)).result  # noqa: B018
        assert len(session.trajectory) == 0
        assert engine.stats().held_bytes == 0
        assert session.turn("", [1], Sampling(max_new_tokens=2)).result.token_ids
        assert session.turn("plan", [200, 201], Sampling(max_new_tokens=2)).result.token_ids


@pytest.mark.parametrize("name", [name for name, scheme in SCHEMES.items() if not scheme.activated])
def test_activated_adapters_under_another_scheme_are_refused(name):
    model, folders = make_activated(targets=("q_proj", "v_proj"))
    with pytest.raises(SchemeError, match=rf"scheme '{name}': adapter 'plan' is activated LoRA.*use the scheme alora"):
        Rig(model, folders, name)


def test_plain_adapters_under_alora_are_refused():
    model, folders = make()
    with pytest.raises(SchemeError, match="adapter 'plan' is no activated LoRA; train it with alora_invocation_tokens"):
        Rig(model, folders, "alora")


@pytest.mark.parametrize(
    ("ids", "pattern", "at"),
    [([1, 2, 1, 2, 3], [1, 2], 2), ([1, 1, 1], [1, 1], 1), ([1, 2], [1, 2, 3], None), ([], [1], None), ([5], [5], 0)],
)
def test_the_last_whole_occurrence_counts(ids, pattern, at):
    assert last_start(ids, pattern) == at
