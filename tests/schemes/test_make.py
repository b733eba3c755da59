"""Schemes by name: options in short and in full, and what is refused."""

import pytest

from agentrt.errors import SchemeError
from agentrt.schemes import SCHEMES
from agentrt.schemes.make import make_scheme
from tests.models import make
from tests.rig import Rig


@pytest.mark.parametrize("name", SCHEMES)
def test_every_scheme_is_made_by_its_name_and_describes_itself(name):
    scheme = make_scheme(name)
    assert scheme.name == name
    described = (scheme.shares, scheme.recomputes, scheme.holds, scheme.exact, scheme.adapters, scheme.source)
    assert all(described)


def test_options_may_stand_behind_the_name_or_beside_it():
    assert make_scheme("rebase_shared:lp") == make_scheme("rebase_shared", {"schedule": "lp"})
    assert make_scheme("rebase_shared").options()["schedule"] == "auto"


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("pre_lr_share", {}, "did you mean 'pre_lr_shared'"),
        ("rebase_shared:lpp", {}, "unknown schedule 'lpp'; known: auto, lp, db, fused"),
        ("rebase_shared:adapted_tail=0", {}, "adapted_tail is 0; write `all`, or a number of tokens from 1 up"),
        ("rebase_shared:lp,lp_at=never", {}, "unknown lp_at 'never'; known: call, handover"),
        ("rebase_shared:auto,lp_at=handover", {}, "needs schedule lp, not auto"),
        ("rebase_shared:auto,fuse_rows=-1", {}, "fuse_rows is -1"),
        ("rebase_shared", {"shedule": "lp"}, "no option 'shedule'.*did you mean 'schedule'"),
        ("non_shared", {"schedule": "lp"}, "non_shared has no option 'schedule'"),
        ("", {}, "name is missing"),
        ("cacheblend:ratio=1.5", {}, r"cacheblend: ratio is 1.5; write a number from 0 to 1"),
        ("relay_caching:ratio=-0.1", {}, r"relay_caching: ratio is -0.1; write a number from 0 to 1"),
        ("cacheblend:ratio=yes", {}, "ratio is 'yes'"),
        ("droidspeak:layers=midle", {}, "unknown layer set 'midle'; write middle, spread, all, none, a range such as"),
        ("droidspeak:layers=4-", {}, "unknown layer set '4-'"),
        ("relay_caching:detect=first", {}, "detect is 'first'; write `auto` or the number of a layer"),
        ("droidspeak_scattered", {"layers": [0, "x"]}, r"unknown layer set \[0, 'x'\]; write middle"),
        ("droidspeak:layers=19-10", {}, "the range 19-10 of layers '19-10' is empty; write 10-19"),
        ("relay_caching", {"layers": 1.5}, "unknown layer set 1.5; write middle"),
        ("droidspeak", {"layers": True}, "unknown layer set True"),
        ("cacheblend:layers=0-1", {}, "cacheblend has no option 'layers'"),
    ],
)
def test_unknown_schemes_and_options_are_refused_by_name(name, options, message):
    with pytest.raises(SchemeError, match=message):
        make_scheme(name, options)


def test_what_only_the_adapters_can_tell_is_refused_when_they_are_known():
    model, folders = make()
    with pytest.raises(
        SchemeError, match=r"adapters differ in A on v_proj or k_proj.*--shared-a, or use pre_lr_shared"
    ):
        Rig(model, folders, "base_lr_shared")
    with pytest.raises(SchemeError, match="pivot 'critic' is not a role with an adapter; roles: plan, action, reflect"):
        Rig(model, folders, "rebase_shared:lp,pivot=critic")
    for scheme, message in {
        "droidspeak:layers=1-3": "droidspeak: layers 1-3 has layer 3, but the model's layers are 0-2",
        "droidspeak_scattered:layers=0+7": "layers 0.7 has layer 7, but the model's layers are 0-2",
        "droidspeak:layers=0+2": r"layers 0\+2 have gaps; write one range, e.g. layers=0-2, or use droidspeak_sc",
        "relay_caching:layers=2-5": "relay_caching: layers 2-5 has layer 3, but the model's layers are 0-2",
        "relay_caching:layers=1-2,detect=0": "detect is 0; the repaired layers are 1-2, choose one of them",
    }.items():
        with pytest.raises(SchemeError, match=message):
            Rig(model, folders, scheme)
