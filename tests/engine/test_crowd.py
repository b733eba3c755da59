"""Eight sessions at once give, token for token, what each gives alone: any order of arrival, any size of chunks."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.engine.conftest import VARIANTS
from tests.engine.test_engine import play
from tests.models import random_turns

SESSIONS = 8


FEW = ("pre_lr_shared", "rebase_shared:auto", "cacheblend")


@pytest.mark.parametrize(
    "scheme", [*FEW, *(pytest.param(name, marks=pytest.mark.slow) for name in VARIANTS if name not in FEW)]
)
@settings(max_examples=3, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(order=st.permutations(range(SESSIONS)), step=st.integers(1, 60), idle=st.integers(1, 9), ride=st.integers(0, 5))
def test_company_changes_no_token(open_engine, scheme, order, step, idle, ride):
    quiet = open_engine(scheme)
    alone = [play(quiet, random_turns(seed, count=4)).trajectory.token_ids for seed in range(SESSIONS)]
    crowd = open_engine(scheme, max_step_tokens=step, chunk_tokens=idle, ride_rows=ride)
    with ThreadPoolExecutor(SESSIONS) as pool:
        running = {seed: pool.submit(play, crowd, random_turns(seed, count=4)) for seed in order}
        found = [running[seed].result().trajectory.token_ids for seed in range(SESSIONS)]
    assert found == alone
    for engine in (quiet, crowd):
        engine.check_integrity()
        engine.close()
