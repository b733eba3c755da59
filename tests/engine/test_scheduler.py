"""What goes into a step, and before what, over turns that only have queues."""

import pytest

from agentrt.cache.places import Places
from agentrt.cache.view import View
from agentrt.engine.scheduler import Scheduler
from agentrt.engine.turn import Turn
from agentrt.engine.work import SessionWork, TurnWork
from agentrt.model.sampling import Sampling
from agentrt.step import Pass, RowPlan, Select
from agentrt.trajectory import Trajectory


def rows(count, *, whole=False):
    """A pass of `count` rows; `whole`: one that chooses among all of them."""
    view = View("kv", ())
    select = Select(1, lambda q, k, v, reused: v, view, Places(0, count, 0), ())
    return Pass("plan", (0,) * count, 0, view, (), "full", plan=RowPlan(1, 3, select=select) if whole else None)


def reading(*passes):
    """A session whose turn waits for its first token."""
    work = SessionWork(Trajectory(), None)
    work.turn = TurnWork(Turn(lambda: None), work, "plan", Sampling(), "generated", Trajectory())
    work.turn.passes.extend(passes)
    work.turn.admitted = True
    return work


def steps(sessions, room):
    """Rows of each pass, step by step, until nothing is left."""
    scheduler = Scheduler(max_step_tokens=room, chunk_tokens=room)
    found = []
    while jobs := scheduler.pack(sessions):
        found.append([len(job.run) for job in jobs])
        for job in jobs:
            scheduler.done(job)
    return found


@pytest.mark.parametrize(
    ("passes", "expected"),
    [
        ((rows(3), rows(3, whole=True), rows(2)), [[3, 3, 2]]),
        ((rows(9), rows(9, whole=True), rows(2)), [[8], [1], [9], [2]]),
        ((rows(4), rows(5, whole=True), rows(2)), [[4], [5, 2]]),
        ((rows(20, whole=True),), [[20]]),
    ],
)
def test_one_that_cannot_be_cut_waits_for_a_step_it_fits_or_goes_first(passes, expected):
    assert steps([reading(*passes)], room=8) == expected


def test_it_does_not_push_a_step_beyond_its_room_behind_others():
    older, younger = reading(rows(5)), reading(rows(6, whole=True))
    assert older.turn.submitted <= younger.turn.submitted
    assert steps([younger, older], room=8) == [[5], [6]]


def decoding(sharing=None):
    """A session whose turn has a token and feeds it."""
    work = reading(rows(1))
    work.sharing = sharing
    work.turn.token_ids.append(7)
    return work


def owing(*passes, urgent=False):
    """A session between two turns, whose last one left passes; `urgent`: somebody waits for them."""
    work = SessionWork(Trajectory(), None, urgent=urgent)
    work.pending.extend(passes)
    return work


class Offers:
    """Sharing that has rows to ride at any time."""

    def __init__(self, most):
        self.most = most

    def ride(self, room):
        return [rows(min(room, self.most))] if room else []


def packed(scheduler, *sessions):
    return [(job.session, len(job.run)) for job in scheduler.pack(sessions)]


def test_running_streams_go_first_and_a_chunk_of_prefill_fills_the_step():
    scheduler = Scheduler(max_step_tokens=8, chunk_tokens=8)
    older, younger, first, second = reading(rows(20)), reading(rows(3)), decoding(), decoding()
    assert packed(scheduler, younger, first, older, second) == [(first, 1), (second, 1), (older, 6)]


def test_a_prefill_beside_running_streams_is_cut_to_a_chunk():
    scheduler = Scheduler(max_step_tokens=20, chunk_tokens=5)
    first, second, decoder = reading(rows(12)), reading(rows(9)), decoding()
    assert packed(scheduler, first, second) == [(first, 12), (second, 8)]
    assert packed(scheduler, first, second, decoder) == [(decoder, 1), (first, 4)]


def test_first_tokens_come_before_what_ended_turns_owe():
    scheduler = Scheduler(max_step_tokens=8, chunk_tokens=3)
    idle, awaited, reader, decoder = owing(rows(5)), owing(rows(4), urgent=True), reading(rows(6)), decoding()
    assert packed(scheduler, idle, awaited, reader) == [(reader, 6), (awaited, 2)]
    assert packed(scheduler, idle, awaited) == [(awaited, 4)]
    assert packed(scheduler, idle, decoder) == [(decoder, 1), (idle, 2)]


def test_what_a_waiting_turn_needs_comes_before_turns_that_came_later():
    scheduler = Scheduler(max_step_tokens=8, chunk_tokens=8)
    awaited = reading()
    awaited.turn.admitted, awaited.urgent = False, True  # its session owes a pass first
    awaited.pending.append(rows(5))
    newer = reading(rows(20))
    assert packed(scheduler, newer, awaited) == [(awaited, 5), (newer, 3)]


def test_rows_that_ride_share_the_room_for_them():
    scheduler = Scheduler(max_step_tokens=8, chunk_tokens=8, ride_rows=5)
    first, second = decoding(Offers(3)), decoding(Offers(3))
    assert packed(scheduler, first, second) == [(first, 1), (first, 3), (second, 1), (second, 2)]
    assert packed(scheduler, reading(rows(9)), first)[-1][1] == 8 - 4, "prefill has what is left"
