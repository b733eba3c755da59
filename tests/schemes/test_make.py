"""Schemes by name: options in short and in full, and what is refused."""

import pytest

from agentrt.errors import SchemeError
from agentrt.schemes import SCHEMES
from agentrt.schemes.make import make_scheme


@pytest.mark.parametrize("name", SCHEMES)
def test_every_scheme_is_made_by_its_name_and_describes_itself(name):
    scheme = make_scheme(name)
    assert scheme.name == name
    assert all((scheme.shares, scheme.recomputes, scheme.holds, scheme.source))


def test_options_may_stand_behind_the_name_or_beside_it():
    assert make_scheme("rebase_shared:lp") == make_scheme("rebase_shared", {"schedule": "lp"})
    assert make_scheme("rebase_shared").options() == {"schedule": "lp"}


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("pre_lr_share", {}, "did you mean 'pre_lr_shared'"),
        ("rebase_shared:lpp", {}, "unknown schedule 'lpp'; known: lp"),
        ("rebase_shared", {"shedule": "lp"}, "no option 'shedule'.*did you mean 'schedule'"),
        ("non_shared", {"schedule": "lp"}, "non_shared has no option 'schedule'"),
        ("", {}, "name is missing"),
    ],
)
def test_unknown_schemes_and_options_are_refused_by_name(name, options, message):
    with pytest.raises(SchemeError, match=message):
        make_scheme(name, options)
