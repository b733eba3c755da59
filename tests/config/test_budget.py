"""KV budgets as people write them."""

import pytest

from agentrt.config.budget import KVBudget
from agentrt.config.settings import Settings, resolve
from agentrt.errors import ConfigError, UsageError


@pytest.mark.parametrize(
    ("value", "budget"),
    [
        ("1.5", (3 * 2**29, None)),
        (2, (2**31, None)),
        (0.25, (2**28, None)),
        ("20000t", (None, 20000)),
        (" 7t ", (None, 7)),
    ],
)
def test_a_number_is_gib_and_t_makes_it_tokens(value: str | float, budget: tuple[int | None, int | None]) -> None:
    assert KVBudget.parse(value) == budget


@pytest.mark.parametrize("value", ["", "0", "0t", "-1", "20k", "20000 tokens", "1.5t", "1GiB", "inf"])
def test_anything_else_is_refused_with_both_forms(value: str) -> None:
    with pytest.raises(
        UsageError, match=r"no KV budget: write GiB as a number \(1\.5\), or tokens with a t \(20000t\)"
    ):
        KVBudget.parse(value)


def test_settings_take_it_from_every_source_and_name_the_place_of_a_mistake() -> None:
    def settle(**sources: object) -> Settings:
        given = {"flags": {}, "sets": (), "environ": {}, "files": (), **sources}
        return resolve(**given).settings  # type: ignore[arg-type]  # one source at a time

    assert settle(flags={"kv_budget": "20000t"}).kv_budget == "20000t"
    assert settle(sets=("kv_budget=1.5",)).kv_budget == "1.5"
    assert settle(environ={"AGENTRT_KV_BUDGET": "2"}).kv_budget == "2"
    for source in (
        {"flags": {"kv_budget": "2k"}},
        {"sets": ("kv_budget=2k",)},
        {"environ": {"AGENTRT_KV_BUDGET": "2k"}},
    ):
        with pytest.raises(
            ConfigError, match=r"(--kv-budget|--set kv_budget=2k|AGENTRT_KV_BUDGET).*'2k' is no KV budget"
        ):
            settle(**source)
    with pytest.raises(ConfigError, match="kv_budget: "):
        settle(sets=("kv_budget=true",))
