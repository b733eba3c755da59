"""Oracle 10: the boundaries of neutral_prefix, and what it is to rebase_shared (SCHEMES.md, sections 3 and 8)."""

import pytest

from agentrt.schemes.rebase_shared import ReBaseSharedSession
from tests.models import FAMILIES, make, random_turns
from tests.reference.held import assert_close
from tests.rig import Rig

QV = ("q_proj", "v_proj")
QKVO = ("q_proj", "k_proj", "v_proj", "o_proj")


class PrefixColumnOff(ReBaseSharedSession):
    """rebase_shared whose speaker adds its low-rank values to its own rows only."""

    def _term(self, path, part, start, end):
        private = self._tapes.get("private")
        return super()._term(path, part, start if private is None else private.start, end)


@pytest.mark.parametrize(("boundary", "tail"), [("question", "all"), ("full", 1)])
@pytest.mark.parametrize("targets", [QV, QKVO], ids=["qv", "qkvo"])
@pytest.mark.parametrize("family", FAMILIES)
def test_it_is_rebase_shared_with_the_prefix_columns_off(family, boundary, tail, targets):
    model, folders = make(family, targets=targets)
    ours = Rig(model, folders, f"neutral_prefix:{boundary}", preamble=[4, 8, 15])
    ablated = Rig(model, folders, f"rebase_shared:lp,adapted_tail={tail}", preamble=[4, 8, 15])
    ablated.sharing.__class__ = PrefixColumnOff
    whole = Rig(model, folders, f"rebase_shared:lp,adapted_tail={tail}", preamble=[4, 8, 15])
    differ = False
    for turn in random_turns(seed=16):
        got = ours.turn(*turn)
        assert_close(got, ablated.turn(*turn), turn[0])
        differ |= bool((got - whole.turn(*turn)).abs().max() > 1e-2)
    assert differ, "the columns are what rebase_shared adds"


@pytest.mark.parametrize("scheme", ["neutral_prefix:native", "own_kv"])
@pytest.mark.parametrize("family", FAMILIES)
def test_native_and_own_kv_equal_non_shared(family, scheme):
    model, folders = make(family, targets=("q_proj", "k_proj", "v_proj", "o_proj"))
    ours, exact = (Rig(model, folders, name, preamble=[4, 8, 15]) for name in (scheme, "non_shared"))
    for turn in random_turns(seed=17):
        assert_close(ours.turn(*turn), exact.turn(*turn), turn[0])


def test_own_kv_reads_the_prefix_in_a_pass_of_its_own():
    model, folders = make()
    rig = Rig(model, folders, "own_kv")
    rig.turn("plan", [1] * 6, [2, 3])
    rig.trajectory.append([5, 5], "user", "context")
    prefix, suffix = rig.sharing.begin("action", 1)
    assert (prefix.start, prefix.end, suffix.start, suffix.end) == (0, 7, 7, 10)
    assert prefix.path == suffix.path == "action"
    assert suffix.view.runs[0].slot == prefix.writes[0].runs[0].slot


@pytest.mark.parametrize(
    ("boundary", "read"), [("native", 20 + 31 + 19), ("early", 20 + 31 + 19), ("question", 37), ("full", 3)]
)
def test_rows_of_each_boundary(boundary, read):
    """Three turns of 20, 9 and 8 context tokens, each feeding two of the three it samples."""
    model, folders = make()
    rig = Rig(model, folders, f"neutral_prefix:{boundary}", preamble=[])
    for agent, context in (("plan", 20), ("action", 9), ("plan", 8)):
        rig.turn(agent, [1] * context, [2, 2, 2])
        rig.trajectory.crop(rig.trajectory.num_processed)
    rig.settle()
    assert rig.rows["plan"] + rig.rows["action"] - 6 == read
    assert rig.rows.get("", 0) == (37 + 6 if boundary in ("question", "full") else 0)


def test_early_holds_the_preamble_once_and_the_rest_per_agent():
    model, folders = make()
    preamble = list(range(11))
    rig = Rig(model, folders, "neutral_prefix:early", preamble=preamble)
    kv = rig.store.planes["kv"].spec.row_bytes
    seen = {}
    for agent, context, forced in random_turns(seed=18):
        rig.turn(agent, context, forced)
        seen[agent] = rig.trajectory.num_processed
        rig.store.check_integrity()
        assert rig.store.held_bytes == (11 + sum(end - 11 for end in seen.values())) * kv
    assert rig.rows[""] == 11


def test_early_cropped_into_the_preamble_goes_on_from_there():
    model, folders = make()
    rig = Rig(model, folders, "neutral_prefix:early", preamble=[1, 2, 3, 4, 5])
    short = Rig(model, folders, "neutral_prefix:early", preamble=[1, 2, 3])
    rig.turn("plan", [9, 9], [8, 8])
    for caches in (rig.sharing, rig.trajectory):
        caches.crop(3)
    for turn in random_turns(seed=19, count=3):
        assert_close(rig.turn(*turn), short.turn(*turn), turn[0])
