import json

import pytest

from agentrt_tools import Json, ToolHealth


def test_counters_add_up() -> None:
    total = ToolHealth(2, 1, 3, {"timeout": 1}) + ToolHealth(1, 0, 0, {"auth": 1, "timeout": 1})
    assert total == ToolHealth(3, 1, 3, {"auth": 1, "timeout": 2})
    assert total.failed == 3


def test_counters_survive_json() -> None:
    health = ToolHealth(2, 1, 3, {"timeout": 1})
    assert ToolHealth.from_json(json.loads(json.dumps(health.to_json()))) == health


@pytest.mark.parametrize(
    "value", [{}, {"calls": 1}, {"calls": 1, "misses": 0, "retries": 0, "failures": {"auth": "one"}}]
)
def test_other_json_is_refused(value: dict[str, Json]) -> None:
    with pytest.raises(ValueError, match="tool health"):
        ToolHealth.from_json(value)
