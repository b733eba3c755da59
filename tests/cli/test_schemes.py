"""`agentrt schemes`."""

import json
from typing import Any

from agentrt.schemes import SCHEMES


def test_every_scheme_is_listed_with_its_options(cli: Any) -> None:
    result = cli("schemes", "--json")
    assert result.exit_code == 0
    listed = {line["name"]: line for line in map(json.loads, result.stdout.splitlines())}
    assert listed.keys() == SCHEMES.keys()
    for name, scheme in SCHEMES.items():
        assert set(listed[name]["options"]) == scheme.option_names()
        for key in ("shares", "recomputes", "holds", "exact", "adapters", "source"):
            assert listed[name][key] == getattr(scheme, key)


def test_people_get_a_line_for_each(cli: Any) -> None:
    lines = cli("schemes").stdout.splitlines()
    assert {line.split()[0] for line in lines if line and not line[0].isspace()} == {"scheme", *SCHEMES}
