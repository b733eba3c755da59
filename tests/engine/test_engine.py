"""The engine as its callers see it: turns, cancellation, crops, forks, budgets, errors; the books after each."""

import sys
import threading

import pytest
import torch

from agentrt.cache.layout import KEYS
from agentrt.errors import (
    CacheFullError,
    EngineClosedError,
    EngineError,
    ResourceError,
    TurnCancelledError,
    UsageError,
)
from agentrt.model.sampling import Sampling
from tests.engine.conftest import QKVO, every_scheme, few_schemes
from tests.models import random_turns

READS_ALL = ("non_shared", "base_shared", "own_kv", "neutral_prefix:early")
REBUILT = {
    "rebase_shared:lp": 6 + 2,
    "rebase_shared:db": 6 + 2,
    "rebase_shared:db,pivot=plan": 6 + 2,
    "rebase_shared:fused": 13,  # of the turn before; its own rows are the next turn's
    "rebase_shared:auto": 1 + 4 + 4,  # left to it by the first turn, and as many whole chunks of 4 as ride
    "rebase_shared:auto,adapted_tail=3,pivot=plan": 4,
    "rebase_shared:lp,lp_at=handover": 13,
    "neutral_prefix:question": 6 + 2,
}
"""Rows of the base path in the second turn of 6 new tokens and 3 generated ones, after one of 10 and 4."""
SELECTIVE = ("droidspeak:layers=1-2", "droidspeak_scattered:layers=0+2", "cacheblend", "relay_caching:layers=0-2")


def play(engine, turns, session=None):
    """Run turns (agent, context, forced): as many tokens as `forced` has are generated greedily."""
    session = session or engine.session(preamble=[4, 8, 15])
    for agent, context, forced in turns:
        session.turn(agent, context, Sampling(max_new_tokens=len(forced))).result  # noqa: B018
    return session


@few_schemes
def test_greedy_tokens_do_not_depend_on_company_or_chunks(open_engine, scheme):
    engine = open_engine(scheme)
    alone = [play(engine, random_turns(seed)).trajectory.token_ids for seed in range(4)]
    crowd = open_engine(scheme, max_step_tokens=5, chunk_tokens=3)
    found = [None] * 4

    def run(seed):
        found[seed] = play(crowd, random_turns(seed)).trajectory.token_ids

    threads = [threading.Thread(target=run, args=(seed,)) for seed in (2, 0, 3, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == alone


@few_schemes
def test_iterating_a_turn_yields_the_tokens_of_its_result(open_engine, scheme):
    session = open_engine(scheme).session()
    turn = session.turn("plan", [1, 2, 3], Sampling(max_new_tokens=6))
    streamed = list(turn)
    assert tuple(streamed) == turn.result.token_ids
    assert turn.result.finish_reason == "length"
    assert session.trajectory.token_ids == [1, 2, 3, *streamed]
    assert session.trajectory.num_processed == 8


@every_scheme
def test_usage_counts_what_was_read_and_what_was_read_again(open_engine, scheme):
    session = open_engine(scheme).session()
    scheme = scheme.removesuffix(QKVO)
    session.turn("plan", [1] * 10, Sampling(max_new_tokens=4)).result  # noqa: B018
    usage = session.turn("action", [2] * 5, Sampling(max_new_tokens=3)).result.usage
    assert usage.context_tokens == 6  # five new ones and plan's last
    again = dict.fromkeys(READS_ALL + SELECTIVE, 13)
    assert usage.recomputed_tokens == again.get(scheme, 0)
    assert usage.reconstructed_tokens == REBUILT.get(scheme, 0)
    assert usage.reused_tokens == (0 if scheme in READS_ALL + SELECTIVE else 13)
    assert usage.generated_tokens == 3
    assert 0 < usage.ttft_s <= usage.submit_to_first_token_s
    assert usage.kv_bytes > 0


@every_scheme
def test_a_cancelled_turn_leaves_the_session_at_its_last_boundary(open_engine, scheme):
    engine = open_engine(scheme)
    session = play(engine, random_turns(1, count=3))
    twin = play(engine, random_turns(1, count=3))
    if scheme.endswith(QKVO):  # what is still owed holds keys
        session.settle()
        twin.settle()
    before = list(session.trajectory.token_ids)
    held = session.kv_bytes
    turn = session.turn("action", [1, 2, 3], Sampling(max_new_tokens=200))
    tokens = iter(turn)
    next(tokens)
    tokens.close()
    with pytest.raises(TurnCancelledError):
        turn.result  # noqa: B018
    assert session.trajectory.token_ids == before
    assert session.kv_bytes == twin.kv_bytes == held
    again = play(engine, random_turns(2, count=3), session).trajectory
    assert again.token_ids == play(engine, random_turns(2, count=3), twin).trajectory.token_ids


@few_schemes
def test_context_appended_before_a_failed_turn_stays(open_engine, scheme):
    session = open_engine(scheme).session()
    session.append([9, 8, 7])

    def broken(generated):
        raise RuntimeError("stop function of the caller")

    turn = session.turn("plan", [6], Sampling(max_new_tokens=5, stop=broken))
    with pytest.raises(RuntimeError, match="of the caller"):
        turn.result  # noqa: B018
    assert session.trajectory.token_ids == [9, 8, 7]
    assert session.trajectory.num_processed == 0
    assert session.turn("plan", [6], Sampling(max_new_tokens=2)).result.usage.context_tokens == 4


@every_scheme
def test_a_full_budget_refuses_the_turn_and_nothing_else(open_engine, scheme):
    engine = open_engine(scheme)
    probe = play(engine, random_turns(1, count=2))
    probe.settle()
    per_token = probe.kv_bytes / max(probe.trajectory.num_processed, 1)
    small = open_engine(scheme, kv_budget_bytes=int(60 * per_token))
    session = play(small, [("plan", [1] * 9, [0] * 3)])
    with pytest.raises(CacheFullError, match="KV budget"):
        session.turn("plan", [2] * 150, Sampling(max_new_tokens=9)).result  # noqa: B018
    assert len(session.trajectory) == 3 + 9 + 3
    small.check_integrity()
    assert session.turn("plan", [2], Sampling(max_new_tokens=2)).result.finish_reason == "length"


@every_scheme
def test_crop_and_replay_give_the_same_continuation(open_engine, scheme):
    engine = open_engine(scheme)
    session = play(engine, random_turns(4, count=3))
    length = len(session.trajectory)
    first = play(engine, random_turns(5, count=2), session).trajectory.token_ids[length:]
    session.crop(length)
    assert session.trajectory.num_processed <= length
    session.crop(length - 1)
    assert len(session.trajectory) == length - 1
    assert len(first) > 0
    engine.check_integrity()
    assert session.turn("plan", [3], Sampling(max_new_tokens=2)).result.usage.generated_tokens == 2


@every_scheme
def test_a_fork_shares_every_slot_and_both_branches_go_on(open_engine, scheme):
    engine = open_engine(scheme)
    session = play(engine, random_turns(6, count=4))
    session.settle()
    held = engine.stats().held_bytes
    fork = session.fork()
    assert engine.stats().held_bytes == held
    left = play(engine, random_turns(7, count=3), session).trajectory.token_ids
    right = play(engine, random_turns(7, count=3), fork).trajectory.token_ids
    assert left == right
    session.close()
    assert play(engine, random_turns(8, count=1), fork).trajectory.token_ids[: len(right)] == right


@every_scheme
def test_a_turn_with_nothing_new_reads_the_last_token_again(open_engine, scheme):
    engine = open_engine(scheme)
    session = engine.session()
    session.turn("plan", [1, 2, 3, 4, 5], Sampling(max_new_tokens=3)).result  # noqa: B018
    session.crop(session.trajectory.num_processed)  # drop the token that is held for the next turn
    usage = session.turn("plan", [], Sampling(max_new_tokens=2)).result.usage
    assert usage.context_tokens == 1
    assert len(session.trajectory) == 9


@few_schemes
def test_misuse_is_named_and_the_engine_goes_on(open_engine, scheme):
    engine = open_engine(scheme, max_context=64)
    session = engine.session()
    with pytest.raises(UsageError, match="empty"):
        session.turn("plan")
    with pytest.raises(UsageError, match="unknown adapter 'critic'; this engine has: plan, action, reflect"):
        session.turn("critic", [1])
    with pytest.raises(UsageError, match="outside the vocabulary"):
        session.append([1, 999])
    with pytest.raises(UsageError, match="exceed the limit of 64"):
        session.turn("plan", [1] * 60, Sampling(max_new_tokens=5))
    with pytest.raises(UsageError, match="temperature"):
        Sampling(temperature=-1)
    turn = session.turn("plan", [1], Sampling(max_new_tokens=60))
    with pytest.raises(EngineError, match="running"):
        session.turn("plan", [1])
    turn.cancel()
    session.close()
    session.close()
    with pytest.raises(EngineClosedError):
        session.append([1])
    assert engine.session().turn("plan", [1], Sampling(max_new_tokens=2)).result.usage.generated_tokens == 2
    engine.close()
    engine.close()
    with pytest.raises(EngineClosedError):
        engine.session()


@every_scheme
def test_an_error_inside_a_step_is_reported_and_survived(open_engine, scheme):
    engine = open_engine(scheme)
    session = play(engine, random_turns(1, count=2))
    session.settle()
    before = list(session.trajectory.token_ids)
    fault = engine.backbone.model.model.norm.register_forward_pre_hook(lambda module, rows: 1 / 0)
    with pytest.raises(EngineError, match="ZeroDivisionError"):
        session.turn("plan", [1, 2], Sampling(max_new_tokens=3)).result  # noqa: B018
    fault.remove()
    assert session.trajectory.token_ids == before
    engine.check_integrity()
    assert session.turn("plan", [1, 2], Sampling(max_new_tokens=3)).result.usage.generated_tokens == 3


@few_schemes
@pytest.mark.parametrize("kind", ["cpu", "cuda", "python"])
def test_memory_that_runs_out_in_a_step_is_told_as_such(open_engine, scheme, kind):
    def ask(module, rows):
        if kind == "cpu":
            return torch.empty(1 << 50)
        raise torch.OutOfMemoryError("CUDA out of memory") if kind == "cuda" else MemoryError

    engine = open_engine(scheme)
    session = play(engine, random_turns(1, count=2))
    session.settle()
    before = list(session.trajectory.token_ids)
    fault = engine.backbone.model.model.norm.register_forward_pre_hook(ask)
    with pytest.raises(ResourceError, match=r"memory ran out in a step.*smaller kv_budget"):
        session.turn("plan", [1, 2], Sampling(max_new_tokens=3)).result  # noqa: B018
    fault.remove()
    assert session.trajectory.token_ids == before
    assert session.turn("plan", [1, 2], Sampling(max_new_tokens=3)).result.usage.generated_tokens == 3


@few_schemes
def test_sampling_is_reproducible_and_seeded(open_engine, scheme):
    engine = open_engine(scheme)

    def draw(seed):
        sampling = Sampling(max_new_tokens=12, temperature=1.5, top_k=50, top_p=0.95, seed=seed)
        return engine.session().turn("plan", [1, 2, 3], sampling).result.token_ids

    assert draw(1) == draw(1)
    assert draw(1) != draw(2)


@every_scheme
def test_keys_made_for_a_reader_are_held_while_somebody_reads_them_only(open_engine, scheme):
    engine = open_engine(scheme, targets=("q_proj", "k_proj", "v_proj", "o_proj"))
    session = play(engine, random_turns(1))
    session.settle()
    pool = engine._store.planes[KEYS].pool if KEYS in engine._store.planes else None
    assert (pool is not None) == scheme.startswith(("base_", "pre_lr", "rebase"))
    if pool is not None:
        assert pool.num_slots > pool.num_held == 0


@every_scheme
def test_a_turn_over_the_preamble_alone_is_served(open_engine, scheme):
    session = open_engine(scheme).session(preamble=[1, 2, 3, 4])
    assert session.turn("plan", [], Sampling(max_new_tokens=2)).result.usage.generated_tokens == 2


@few_schemes
def test_a_callable_of_the_caller_can_neither_kill_nor_block_the_worker(open_engine, scheme):
    engine = open_engine(scheme)
    session, other = engine.session(), engine.session()
    for fault, error in (
        (lambda ids: sys.exit(1), SystemExit),
        (lambda ids: session.close(), UsageError),
        (lambda ids: engine.close(), UsageError),
        (lambda ids: other.settle(), UsageError),
        (lambda ids: other.turn("plan", [1], Sampling(max_new_tokens=1)).result, UsageError),
        (lambda ids: list(other.turn("plan", [1], Sampling(max_new_tokens=1))), UsageError),
    ):
        turn = session.turn("plan", [1, 2], Sampling(max_new_tokens=3, stop=fault))
        with pytest.raises(error):
            turn.result  # noqa: B018
    assert session.turn("plan", [1, 2], Sampling(max_new_tokens=3)).result.finish_reason == "length"


@few_schemes
def test_an_id_outside_the_vocabulary_fails_its_own_turn_only(open_engine, scheme):
    class Wild:
        def allowed(self, generated):
            return [-1]

    engine = open_engine(scheme)
    with pytest.raises(UsageError, match="outside the vocabulary"):
        engine.session().turn("plan", [1], Sampling(constraint=Wild())).result  # noqa: B018
    assert engine.session().turn("plan", [1], Sampling(max_new_tokens=2)).result.usage.generated_tokens == 2


@every_scheme
def test_a_pending_pass_that_fails_is_tried_again_when_it_is_needed(open_engine, scheme):
    engine = open_engine(scheme)
    session = engine.session()
    session.turn("plan", [1, 2, 3], Sampling(max_new_tokens=3)).result  # noqa: B018
    session.settle()
    layer = engine.backbone.model.model.layers[0]
    arm = {"on": True}

    def fault(module, inputs):
        if arm["on"]:
            raise ZeroDivisionError

    handle = layer.register_forward_pre_hook(fault)
    with pytest.raises(EngineError, match="ZeroDivisionError"):
        session.turn("plan", [4], Sampling(max_new_tokens=3)).result  # noqa: B018
    steps = engine.stats().steps
    arm["on"] = False
    assert session.turn("plan", [4], Sampling(max_new_tokens=3)).result.usage.generated_tokens == 3
    handle.remove()
    assert engine.stats().steps > steps


@every_scheme
def test_forced_tokens_leave_the_session_that_sampled_ones_leave(open_engine, scheme):
    engine = open_engine(scheme)
    sampled, forced = engine.session([4, 8, 15]), engine.session([4, 8, 15])
    for agent, context, _ in random_turns(1):
        hot = Sampling(max_new_tokens=5, temperature=2.0, seed=3)
        wanted = sampled.turn(agent, context, hot).result
        given = Sampling(max_new_tokens=5, forced=wanted.token_ids, stop=lambda generated: len(generated) == 2)
        found = forced.turn(agent, context, given).result
        assert found.token_ids == wanted.token_ids
        assert found.logprobs == pytest.approx(wanted.logprobs, abs=1e-4)  # fp32, packed otherwise
    assert forced.trajectory.processed == sampled.trajectory.processed
