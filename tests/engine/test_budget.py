"""Budgets in tokens: worth what the scheme keeps of a token."""

import pytest

from agentrt.engine import EngineConfig
from agentrt.errors import CacheFullError, UsageError
from agentrt.model.sampling import Sampling

KV, COLUMN = 2 * 3 * 2 * 8 * 4, 3 * 4 * 4  # fp32: K and V of 3 layers and 2 heads of 8; 3 layers of rank 4


@pytest.mark.parametrize(
    ("scheme", "token_bytes"),
    [
        ("non_shared", KV),
        ("neutral_prefix:question", KV),
        ("base_lr_shared", KV + COLUMN),
        ("pre_lr_shared", KV + 3 * COLUMN),
        ("rebase_shared:lp", KV + 3 * COLUMN),
    ],
)
def test_a_token_is_a_row_of_every_plane(open_engine, scheme, token_bytes):
    engine = open_engine(scheme, kv_budget_tokens=40)
    assert engine._store.budget_bytes == 40 * token_bytes
    session = engine.session()
    if scheme not in ("neutral_prefix:question", "rebase_shared:lp"):  # whose turns hold private rows besides
        assert session.turn("plan", [1] * 32, Sampling(max_new_tokens=9)).result.token_ids
        session.crop(0)
    with pytest.raises(CacheFullError, match="KV budget"):
        session.turn("plan", [1] * 32, Sampling(max_new_tokens=10)).result  # noqa: B018


def test_two_budgets_are_one_too_many():
    with pytest.raises(UsageError, match="kv_budget_bytes or kv_budget_tokens, not both"):
        EngineConfig(kv_budget_bytes=1, kv_budget_tokens=1)
