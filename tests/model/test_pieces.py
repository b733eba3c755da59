"""Overlays as a slot table: for every position the row that counts, in order, whatever lies where."""

import random

import pytest
import torch

from agentrt.cache.layout import KV, Layout
from agentrt.cache.places import Places
from agentrt.cache.slots import cut, length
from agentrt.cache.store import CacheStore, Claim
from agentrt.cache.view import Overlay, View
from agentrt.model.pieces import ordered_pieces

LAYOUT = Layout(num_layers=4, num_kv_heads=1, head_dim=2, dtype=torch.float32, lr_dtype=torch.float32, ranks={})
OWN = "own"
COVERED = (1, 3)


def settled(start, end, positions):
    places = Places(start, end, len(positions))
    places.settle(torch.tensor(positions))
    return places


def scattered(store, plane, count, rng):
    """`count` slots in several runs, in no order of memory."""
    (runs,) = store.reserve([Claim(plane, 4 * count)])
    pieces = [cut(runs, 4 * start, 4 * start + 1 + start % 3) for start in range(count)]
    rng.shuffle(pieces)
    return cut([run for each in pieces for run in each], 0, count)


def label(store, plane, runs, numbers):
    """Write a number into every key of every layer that the plane covers."""
    numbers = iter(numbers)
    for run in runs:
        stretch = store.planes[plane].locate(run)
        for row in range(run.size):
            number = next(numbers)
            for layer in store.planes[plane].spec.layers:
                stretch.read("k", layer)[row] = number


@pytest.mark.parametrize("seed", range(6))
def test_every_position_reads_its_own_row_where_there_is_one(seed):
    rng = random.Random(seed)
    store = CacheStore([LAYOUT.kv_spec(), LAYOUT.kv_spec(OWN, COVERED)], segment_slots=8, poison=True)
    total, edge = 23, rng.randint(5, 18)
    places = [settled(low, high, sorted(rng.sample(range(low, high), 4))) for low, high in ((0, edge), (edge, total))]
    own = [position for each in places for position in each.positions.tolist()]
    runs, theirs = scattered(store, KV, total, rng), scattered(store, OWN, len(own), rng)
    label(store, KV, runs, range(total))
    label(store, OWN, theirs, [100 + position for position in own])
    view = View(KV, runs, overlays=(Overlay(OWN, tuple(places), theirs),))

    found = ordered_pieces(view, store.planes)

    assert set(found) == set(COVERED)
    for layer in COVERED:
        read = torch.cat([piece.keys.read("k", layer)[:, 0, 0] for piece in found[layer]])
        assert read.tolist() == [100 + position if position in own else position for position in range(total)]
        position = 0
        for piece in found[layer]:
            assert (piece.position, piece.column, piece.places) == (position, None, None)
            position += piece.keys.end - piece.keys.start
    assert length(runs) == position


def test_an_overlay_whose_places_are_not_chosen_yet_is_read_by_nobody():
    store = CacheStore([LAYOUT.kv_spec(), LAYOUT.kv_spec(OWN, COVERED)], segment_slots=8, poison=True)
    runs, theirs = store.reserve([Claim(KV, 6), Claim(OWN, 2)])
    places = Places(0, 6, 2)
    view = View(KV, runs, overlays=(Overlay(OWN, (places,), theirs),))
    assert ordered_pieces(view, store.planes) == {}
    places.settle(torch.tensor([1, 4]))
    assert set(ordered_pieces(view, store.planes)) == set(COVERED)
