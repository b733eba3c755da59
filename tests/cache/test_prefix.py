"""Kept preambles: identity by content, claims, and who leaves when there is no room."""

import copy
import shutil

import pytest

from agentrt.cache.prefix import Identity, PreamblePending
from agentrt.cache.store import CacheStore, Claim
from agentrt.errors import CacheFullError
from agentrt.model.backbone import Backbone
from agentrt.model.tiny import tiny_adapter
from tests.cache.test_plane import LAYOUT
from tests.models import make

IDENTITY = Identity("base", {"plan": "p", "action": "a"}, "pre_lr_shared []")
PLANES = (LAYOUT.kv_spec(), LAYOUT.column_spec("plan"))


def open_store(**options):
    return CacheStore([LAYOUT.kv_spec()], segment_slots=16, identity=IDENTITY, **options)


def keep(store, key, tokens):
    """Compute and keep an entry of so many tokens, held by nobody else; returns its runs."""
    assert store.prefixes.find(key) is None
    (runs,) = store.reserve([Claim("kv", tokens)])
    store.prefixes.add(key, (("kv", runs),))
    store.release("kv", runs)
    return runs


def test_a_key_changes_with_everything_it_stands_for():
    link = IDENTITY.link
    keys = [
        link(IDENTITY.root, [1, 2], "plan", PLANES),
        link(IDENTITY.root, [1, 3], "plan", PLANES),
        link(IDENTITY.root, [12], "plan", PLANES),
        link(IDENTITY.root, [1, 2], "action", PLANES),
        link(IDENTITY.root, [1, 2], "", PLANES),
        link(IDENTITY.root, [1, 2], "plan", PLANES[:1]),
        link(link(IDENTITY.root, [1, 2], "action", ()), [1, 2], "plan", PLANES),
    ]
    for other in (
        Identity("other base", IDENTITY.adapters, IDENTITY.scheme),
        Identity("base", {"plan": "changed", "action": "a"}, IDENTITY.scheme),
        Identity("base", {"plan": "p", "action": "changed"}, IDENTITY.scheme),
        Identity("base", {"plan": "p", "action": "a", "reflect": "r"}, IDENTITY.scheme),
        Identity("base", IDENTITY.adapters, "full_shared []"),
    ):
        keys.append(other.link(other.root, [1, 2], "plan", PLANES))
    assert len(set(keys)) == len(keys)
    again = Identity("base", {"action": "a", "plan": "p"}, IDENTITY.scheme)
    assert again.link(again.root, [1, 2], "plan", PLANES) == keys[0]


def test_an_adapter_trained_on_under_its_old_name_finds_nothing(tmp_path):
    model, made = make()
    folders = {agent: shutil.copytree(folder, tmp_path / agent) for agent, folder in made.items()}
    backbone = Backbone(copy.deepcopy(model))
    plane = backbone.layout(backbone.load_adapters(folders)).kv_spec()

    def key():
        identity = Identity(backbone.content_hash, backbone.load_adapters(folders).hashes, "full_shared []")
        return identity.link(identity.root, [1, 2, 3], "plan", [plane])

    before = key()
    assert key() == before
    shutil.copytree(folders["plan"], tmp_path / "kept")
    tiny_adapter(model, folders["plan"], seed=99)
    assert key() != before
    shutil.copytree(tmp_path / "kept", folders["plan"], dirs_exist_ok=True)
    assert key() == before


def test_a_claimed_key_is_asked_for_again_until_it_is_added_or_given_up():
    prefixes = open_store().prefixes
    assert prefixes.find("x") is None
    with pytest.raises(PreamblePending):
        prefixes.find("x")
    prefixes.give_up("x")
    assert prefixes.find("x") is None
    assert len(prefixes) == 0


def test_the_least_recently_used_leave_first_and_those_in_use_stay():
    store = open_store(budget_bytes=12 * LAYOUT.kv_spec().row_bytes)
    runs = {key: keep(store, key, 4) for key in "abc"}
    assert store.prefixes.find("a") == (("kv", runs["a"]),)  # now the most recent
    store.retain("kv", runs["c"])  # a live session
    (taken,) = store.reserve([Claim("kv", 3)])
    assert len(store.prefixes) == 2
    assert store.prefixes.find("b") is None
    store.prefixes.give_up("b")
    (more,) = store.reserve([Claim("kv", 5)])
    assert store.prefixes.find("c") is not None
    assert len(store.prefixes) == 1
    with pytest.raises(CacheFullError):
        store.reserve([Claim("kv", 1)])
    assert store.prefixes.find("c") is not None
    store.release("kv", [*taken, *more, *runs["c"]])
    store.check_integrity()
    store.prefixes.clear()
    assert store.held_bytes == 0


def test_a_refused_reservation_drops_no_entry():
    store = open_store(budget_bytes=12 * LAYOUT.kv_spec().row_bytes)
    keep(store, "a", 4)
    with pytest.raises(CacheFullError):
        store.reserve([Claim("kv", 13)])
    assert len(store.prefixes) == 1


def test_no_more_entries_than_allowed():
    store = open_store(max_preambles=2)
    for key in "abc":
        keep(store, key, 2)
    assert len(store.prefixes) == 2
    assert store.prefixes.find("a") is None
    assert store.prefixes.enabled
    assert not open_store(max_preambles=0).prefixes.enabled
