"""Scheme names on the command line and in team files."""

import pytest

from agentrt.config.scheme import SchemeConfig, parse_scheme
from agentrt.config.team import Override, Team, check_scheme
from agentrt.errors import SchemeError

KNOWN = {"non_shared": frozenset[str](), "rebase_shared": frozenset({"schedule", "lp_at"})}


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("rebase_shared", {}),
        ("rebase_shared:lp", {"schedule": "lp"}),
        ("rebase_shared:auto,adapted_tail=16", {"schedule": "auto", "adapted_tail": 16}),
        ("rebase_shared:lp_at=handover,flag=true", {"lp_at": "handover", "flag": True}),
    ],
)
def test_the_short_spelling_reads_back(text: str, options: dict[str, object]) -> None:
    scheme = parse_scheme(text)
    assert (scheme.name, scheme.options) == ("rebase_shared", options)
    assert str(scheme) == text


@pytest.mark.parametrize("text", ["", ":lp", "a:=1", "a:x=[1]", "a:x=", "a:lp,db", "a:name=b"])
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(SchemeError, match="--scheme"):
        parse_scheme(text)


def test_options_may_be_any_scalar_but_no_list() -> None:
    assert SchemeConfig.model_validate({"name": "x", "ratio": 0.3}).options == {"ratio": 0.3}
    with pytest.raises(ValueError, match="ratio"):
        SchemeConfig.model_validate({"name": "x", "ratio": (1, 2)})


@pytest.mark.parametrize(
    ("scheme", "says"),
    [
        ({"name": "rebase_share"}, "did you mean 'rebase_shared'?"),
        ({"name": "rebase_shared", "shedule": "lp"}, "did you mean 'schedule'?"),
        ({"name": "non_shared", "schedule": "lp"}, "no option 'schedule'"),
    ],
)
def test_a_team_with_an_unknown_scheme_or_option_has_a_problem(scheme: dict[str, object], says: str) -> None:
    override = Override(("scheme",), scheme, "--scheme")
    team = Team.load("search", overrides=[override], need_adapters=False)
    problems = check_scheme(team, KNOWN)
    assert len(problems) == 1
    assert says in problems[0].message


def test_a_known_scheme_has_no_problem() -> None:
    override = Override(("scheme",), {"name": "rebase_shared", "schedule": "lp"}, "--scheme")
    assert check_scheme(Team.load("search", overrides=[override], need_adapters=False), KNOWN) == []
