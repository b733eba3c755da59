"""Crops and forks against sessions that never had the rest, and against the dense definitions, which never cut a cache.

A crop's definition is a trajectory in which what was cut has not happened; a branch's is a lone session with its
history.
"""

import pytest
import torch

from agentrt.model.sampling import Sampling
from tests.engine.cast import QKVO, cast
from tests.engine.invariants import gives_the_logprobs_of
from tests.engine.part import slots_of
from tests.models import random_turns
from tests.reference.held import assert_holds
from tests.reference.registry import REFERENCES
from tests.schemes.test_dense_reference import FACTORED

PREAMBLE = [4, 8, 15]
KEYED = [name + QKVO for name in REFERENCES if name.startswith(FACTORED)]
CHOOSING = ("cacheblend", "relay_caching")
QUICK = (
    "non_shared",
    "base_shared",
    "base_lr_shared",
    "pre_lr_shared",
    "rebase_shared:lp",
    "rebase_shared:lp,lp_at=handover",
    "rebase_shared:auto,pivot=plan",
    "rebase_shared:db/qkvo",
    "droidspeak",
    "cacheblend",
)


def case(variant, *more):
    """Parameters of a test, which is slow but for a few variants."""
    return pytest.param(variant, *more, marks=[] if variant in QUICK else pytest.mark.slow)


def can_be_undone(variant, speaker):
    """What an agent has chosen to compute again stays chosen at a crop; and a handover ends what the last speaker has
    kept for itself."""
    return speaker == "the last speaker" or not (variant.startswith(CHOOSING) or "handover" in variant)


def play(session, turns):
    """Run turns (agent, context, generated) with their tokens given; the results."""
    found = []
    for agent, context, generated in turns:
        sampling = Sampling(max_new_tokens=len(generated), forced=generated)
        found.append(session.turn(agent, context, sampling).result)
    return found


def define(definition, turns):
    """The definition's logits of the same turns."""
    return [definition.turn(*turn) for turn in turns]


def assert_same(found, other):
    """Two runs of the same turns: tokens and log-probabilities."""
    for one, two in zip(found, other, strict=True):
        assert one.token_ids == two.token_ids
        torch.testing.assert_close(torch.tensor(one.logprobs), torch.tensor(two.logprobs), rtol=0, atol=2e-5)


def greedy(session, seed):
    """Turns whose tokens the model chooses: they tell which."""
    return [
        session.turn(agent, context, Sampling(max_new_tokens=5)).result
        for agent, context, _ in random_turns(seed, count=3)
    ]


@pytest.mark.parametrize(
    ("variant", "speaker"),
    [
        case(variant, speaker)
        for variant in [*REFERENCES, *KEYED]
        for speaker in ("the last speaker", "another")
        if can_be_undone(variant, speaker)
    ],
)
def test_a_cropped_turn_has_never_been(open_engine, variant, speaker):
    engine, definition = open_engine(variant, max_step_tokens=7), cast(variant).definition(PREAMBLE)
    session = engine.session(PREAMBLE)
    kept, rest = random_turns(4, count=4), random_turns(5, count=5)
    play(session, kept)
    define(definition, kept)
    processed = session.trajectory.num_processed
    branch = session.fork()
    branch.crop(processed)  # the last token, which nobody has read
    definition.token_ids.pop()
    agent = kept[-1][0] if speaker == "the last speaker" else next(a for a, *_ in kept if a != kept[-1][0])
    play(session, [(agent, list(range(20, 33)), [7, 6, 5, 4])])
    session.settle()
    session.crop(processed)
    assert session.trajectory == branch.trajectory
    found, wanted = play(session, rest), define(definition, rest)
    assert_same(found, play(branch, rest))
    for result, logits in zip(found, wanted, strict=True):
        gives_the_logprobs_of(logits, result)
    assert_same(greedy(session, 6), greedy(branch, 6))
    for each in (session, branch):
        each.settle()
    assert session.kv_bytes == branch.kv_bytes
    engine.check_integrity()


def define_up_to(definition, turns, length):
    """A past of which the first `length` tokens have been, all of them read: a turn's last one by the next speaker."""
    for agent, context, generated in turns:
        left = length - len(definition.token_ids)
        if left < len(context) + len(generated):
            had = [*context, *generated][:left]
            definition.turn(agent, had[: len(context)], [*had[len(context) :], 0])
            definition.token_ids.pop()
            return
        definition.turn(agent, context, generated)


PAST = [
    ("plan", list(range(5, 18)), [30, 31, 32, 33, 34]),
    ("action", list(range(60, 67)), [40, 41, 42, 43, 44, 45]),
    ("plan", list(range(90, 101)), [50, 51, 52, 53]),
    ("reflect", list(range(130, 139)), [70, 71, 72, 73, 74]),
]


@pytest.mark.parametrize(
    "variant", [case(each) for each in [*REFERENCES, *KEYED] if "tail" not in each and can_be_undone(each, "another")]
)
def test_a_crop_anywhere_leaves_what_had_been_read_up_to_there(open_engine, variant):
    """Among generated tokens, in a context, behind a turn's last token, turns ago. (A tail is counted from the end of
    the context it was read in, and a handover has happened: `test_properties` has those.)"""
    engine = open_engine(variant, max_step_tokens=7)
    session, rest = engine.session(PREAMBLE), random_turns(15, count=3)
    play(session, PAST)
    for length in (61, 53, 49, 32):
        branch, definition = session.fork(), cast(variant).definition(PREAMBLE)
        branch.crop(length)
        define_up_to(definition, PAST, length)
        assert branch.trajectory.token_ids == definition.token_ids
        for result, logits in zip(play(branch, rest), define(definition, rest), strict=True):
            gives_the_logprobs_of(logits, result)
        branch.settle()
        definition.settle()
        assert_holds(definition, branch._work.sharing, engine._store.planes)


@pytest.mark.parametrize("variant", [case(each) for each in [*REFERENCES, *KEYED]])
def test_branches_of_a_fork_are_sessions_of_their_own(open_engine, variant):
    """Other turns on each, at the same time; each is a lone session with that history, and the past stays one copy."""
    engine = open_engine(variant, max_step_tokens=7)
    past, futures = random_turns(24, count=4), [random_turns(seed, count=4) for seed in (25, 26)]
    session = engine.session(PREAMBLE)
    play(session, past)
    session.settle()
    held = engine.stats().held_bytes
    branches = [session, session.fork()]
    assert engine.stats().held_bytes == held
    shared = {
        name: slots_of(tape.runs(tape.start, tape.end))
        for name, tape in session._work.sharing.tapes.items()
        if name != "private"
    }
    found = [[], []]
    for turns in zip(*futures, strict=True):
        running = [
            branch.turn(agent, context, Sampling(max_new_tokens=len(generated), forced=generated))
            for branch, (agent, context, generated) in zip(branches, turns, strict=True)
        ]
        for results, turn in zip(found, running, strict=True):
            results.append(turn.result)
    for branch, results, turns in zip(branches, found, futures, strict=True):
        definition = cast(variant).definition(PREAMBLE)
        define(definition, past)
        for result, logits in zip(results, define(definition, turns), strict=True):
            gives_the_logprobs_of(logits, result)
        lone = engine.session(PREAMBLE)
        play(lone, past)
        lone.settle()
        assert_same(results, play(lone, turns))
        lone.close()
        for name, slots in shared.items():
            tape = branch._work.sharing.tapes[name]
            assert slots_of(tape.runs(tape.start, tape.end))[: len(slots)] == slots, name
            assert all(engine._store.planes[tape.plane].pool.refcount(slot) >= 2 for slot in slots), name
    session.close()
    again = greedy(branches[1], 27)
    lone = engine.session(PREAMBLE)
    play(lone, past)
    lone.settle()
    play(lone, futures[1])
    assert_same(again, greedy(lone, 27))
    engine.check_integrity()
