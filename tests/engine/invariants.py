"""The invariants of DESIGN.md (section 4), each a check of running sessions; the number says which one it is.

Those that need many engines or other programs have tests of their own: crash and resume (4.7) in `tests/runtime`,
other adapters (4.6) in `tests/cache/test_prefix.py`, what decoding allocates (4.4) in `tests/schemes/test_sharing.py`.
"""

import itertools

import numpy as np
import torch

from tests.engine.part import PASSING, Boundary, owed_slots, slots_of
from tests.reference.held import assert_holds
from tests.reference.sizes import held_bytes
from tests.schemes.test_invariants import peft_logits, stock_logits

ATOL = 1e-4
"""Of log-probabilities in fp32."""

ALWAYS_EXACT = ("non_shared", "own_kv")
EXACT_ALONE = ("full_shared", "base_shared", "base_lr_shared", "pre_lr_shared")
SELECTIVE = ("droidspeak", "droidspeak_scattered", "cacheblend", "relay_caching")


def says_what_peft_says(part, told, *, zero_b=False):
    """4.1, 4.2: equal to transformers + peft with B = 0, or where the scheme is exact."""
    if not (zero_b or is_exact(part, told)):
        return
    ids = part.definition.token_ids
    if told.agent:
        logits = peft_logits(part.cast.dense, told.agent, ids)
    else:
        with part.cast.dense.peft_model.disable_adapter():
            logits = stock_logits(part.cast.dense.peft_model, ids)
    gives_the_logprobs_of(logits[-len(told.result.token_ids) - 1 : -1], told.result)


def is_exact(part, told):
    name, options = part.scheme.name, part.scheme.options()
    if name in ALWAYS_EXACT or options.get("boundary") == "native":
        return True
    if part.fixed is not None and told.agent == part.fixed:  # it reads what it has written itself
        return True
    alone = set(part.paths) == {told.agent}
    if name in (*EXACT_ALONE, *SELECTIVE):
        return alone
    if options.get("lp_at") == "handover":  # while no base pass has come between
        return alone and not part.definition.length(("k0", 0))
    return alone and told.start == 0 and name != "alora"  # whose adapter begins at its invocation


def says_what_its_definition_says(told):
    """4.3 (oracle 0), 4.6 and 4.7: the turn's tokens and log-probabilities are those of the dense definition for this
    history, which knows no other session, no steps, and no preamble that somebody else has read."""
    gives_the_logprobs_of(told.logits, told.result)


def gives_the_logprobs_of(logits, result):
    logprobs = logits.log_softmax(-1)
    want = logprobs[torch.arange(len(logits)), list(result.token_ids)]
    torch.testing.assert_close(torch.tensor(result.logprobs), want, rtol=0, atol=ATOL)


def takes_the_likeliest(told):
    """4.2, 4.7: a greedy turn's tokens, where the top two differ by more than 1e-4."""
    chosen = told.logits[torch.arange(len(told.logits)), list(told.result.token_ids)]
    assert (told.logits.max(-1).values - chosen < ATOL).all()


def holds_what_its_definition_holds(part):
    """4.3, 4.8: every row of every tape; but for those that a pass still owed is to write."""
    with part.engine._changed:
        assert_holds(part.definition, part.sharing, part.engine._store.planes, owed_slots(part.engine))


def is_at_its_boundary(part):
    """4.8: the trajectory is what its successful operations leave, and so is who processed which token."""
    trajectory = part.session.trajectory
    assert trajectory.token_ids == part.definition.token_ids
    assert [span.path for span in trajectory.processed for _ in range(span.start, span.end)] == part.paths
    assert sum(span.end - span.start for span in trajectory.spans) == len(trajectory)
    assert part.session._work.turn is None


def holds_the_bytes_of_the_formula(part):
    """4.4: bytes held equal SCHEMES.md, section 8."""
    with part.engine._changed:
        if not any(name.startswith("keys:") for name in part.sharing.tapes):  # made for passes that are still owed
            assert part.sharing.kv_bytes == held_bytes(part, owed=owed(part))


def owed(part):
    """Tokens whose base rows a schedule has put off to the next turn."""
    options, base = part.scheme.options(), part.sharing.tapes.get("base")
    if "schedule" not in options or base is None or part.scheme.options().get("boundary") in ("early", "native"):
        return 0
    tokens = len(part.paths) - base.end
    later = options["schedule"] == "fused" or options.get("lp_at") == "handover"
    assert 0 <= tokens <= (len(part.paths) if later else options.get("fuse_rows", 64))
    assert later or options["schedule"] == "auto" or tokens == 0
    return tokens


def shares_its_slots_with_its_branches(part):
    """4.4: what was there at a fork is one copy, before and after either branch generates."""
    for twin, common in part.twins.items():
        for name, (start, end) in common.items():
            if end > start:
                mine, others = (slots_of(each.sharing.tapes[name].runs(start, end)) for each in (part, twin))
                assert mine == others, name


def share_one_copy_of_a_preamble(parts):
    """4.4, 4.6: sessions whose preamble one path has read hold the same slots of it.

    Not so what ridge translates for an agent: each session makes that for itself from the base, which is shared.
    """
    copies = {}
    for part in parts:
        length = len(part.preamble)
        if not length or part.definition.preamble < length or len(part.paths) < length:
            continue  # none, or cropped into
        for name, tape in part.sharing.tapes.items():
            translated = part.scheme.name == "ridge" and name != "base"
            whole = tape.start == 0 and tape.end >= length and "/" not in name and not translated
            if whole and not name.startswith(PASSING):
                slots = slots_of(tape.runs(0, length))
                assert copies.setdefault((part.preamble, name, part.paths[0]), slots) == slots, name


def has_books_that_add_up(engine):
    """4.5: free + held = total, and a slot has as many references as live tapes and kept preambles hold it."""
    with engine._changed:
        engine._store.check_integrity()
        held = [
            (tape.plane, tape.runs(tape.start, tape.capacity))
            for work in engine._sessions
            for tape in work.sharing.tapes.values()
        ]
        kept = [each for parts in engine._store.prefixes._entries.values() for each in parts]
        for name, plane in engine._store.planes.items():
            counted = np.zeros_like(plane.pool._refs)
            for slot in itertools.chain(*(slots_of(runs) for where, runs in (*held, *kept) if where == name)):
                counted[slot] += 1
            assert (counted == plane.pool._refs).all(), name


def touches_only_what_is_its_own(step, engine):
    """4.4, 4.5: what a pass reads and writes is held by its session, and what it writes by nobody else."""
    with engine._changed:
        planes = engine._store.planes
        owners = [
            {
                (tape.plane, slot)
                for tape in work.sharing.tapes.values()
                for slot in slots_of(tape.runs(tape.start, tape.capacity))
            }
            for work in engine._sessions
        ]
        for each in step.passes:
            reads, writes = touched(each)
            assert any(reads | writes <= owned for owned in owners), "slots of no session, or of several"
            shared = {key for key in writes if planes[key[0]].pool.refcount(key[1]) != 1}
            assert not shared, f"{each.path!r} writes slots that others hold: {sorted(shared)}"


def touched(each):
    """(plane, slot) of all that a pass reads, and of all that it writes."""
    view, plan = each.view, each.plan
    reads = [(view.plane, view.runs), ("keys", view.keys), *((part.plane, part.runs) for part in view.overlays)]
    writes = [(write.plane, write.runs) for write in each.writes]
    if view.column is not None:
        reads.append((view.column.plane, view.column.runs))
    for done in each.maps:
        reads.append((done.plane, done.source))
        writes.append((done.plane, done.target))
    for made in each.keys:
        reads.append(("kv", made.base))
        writes.append(("keys", made.target))
    if plan is not None:
        reads += [(plan.source.plane, plan.source.runs)] if plan.source else []
        writes += [(plan.store.plane, plan.store.runs)] if plan.store else []
        writes += [(write.plane, write.runs) for write in (plan.select.writes if plan.select else ())]
    return ({(plane, slot) for plane, runs in each for slot in slots_of(runs)} for each in (reads, writes))


def has_moved_nothing(part, before: Boundary, kept: int):
    """4.4: what a turn found is where it was: slots of positions below `kept`."""
    after = Boundary.of(part).tapes
    for name, (start, slots) in before.tapes.items():
        if name in after and not name.startswith(PASSING) and "/" not in name:
            count = min(len(slots), max(0, kept - start))
            assert after[name][1][:count] == slots[:count], name


def is_as_it_was(part, before: Boundary):
    """4.7 of a session that others work beside; 4.8 of one whose turn was cancelled, refused or has failed."""
    assert Boundary.of(part) == before
