"""Any mix of turns, cancels, failures, crops and forks keeps the invariants of DESIGN.md (section 4), after each.

Hypothesis makes the schedules; `stage` plays them beside the dense definitions; the checks are in `invariants`.
"""

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.engine.cast import QKVO, ZERO
from tests.engine.stage import Ask, Does, Ends, Stage, Together
from tests.models import AGENTS
from tests.reference.registry import REFERENCES
from tests.schemes.test_alora import SCHEDULES
from tests.schemes.test_dense_reference import FACTORED

ASKS = st.builds(
    Ask, st.sampled_from((*AGENTS, "")), st.integers(0, 15), st.integers(1, 5), st.booleans(), st.integers(0, 9999)
)
TURNS = st.builds(Together, st.lists(ASKS, min_size=1, max_size=3).map(tuple))
ENDS = st.builds(Ends, st.sampled_from(["cancel", "fail", "full"]), ASKS, st.integers(0, 7))
BRANCHES = st.builds(Does, st.sampled_from(["crop", "fork"]), st.integers(0, 99))
OTHERS = st.builds(Does, st.sampled_from(["open", "append", "wait", "settle", "close"]), st.integers(0, 99))
OPERATIONS = st.one_of(TURNS, TURNS, ENDS, BRANCHES, OTHERS)
SCHEDULE = st.lists(st.tuples(st.integers(0, 9), OPERATIONS), min_size=4, max_size=12)

VARIANTS = [
    *REFERENCES,
    *(name + QKVO for name in REFERENCES if name.startswith(FACTORED)),
    *(f"alora:{schedule}" for schedule in SCHEDULES),
    "ridge",
    "pre_lr_shared" + ZERO,
    "rebase_shared:auto,adapted_tail=4" + ZERO,
]
FEW = (
    "non_shared",
    "base_shared",
    "pre_lr_shared",
    "rebase_shared:lp,lp_at=handover",
    "rebase_shared:db,adapted_tail=2",
    "rebase_shared:auto,pivot=plan",
    "cacheblend",
    "alora:lp",
    "rebase_shared:auto,fuse_rows=4/qkvo",
)
"""One of each way to share, with the options that change what a crop or a fork finds."""

some_variants = pytest.mark.parametrize(
    "variant", [name if name in FEW else pytest.param(name, marks=pytest.mark.slow) for name in VARIANTS]
)


@some_variants
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(schedule=SCHEDULE, step=st.sampled_from([4, 7, 60]), ride=st.sampled_from([0, 4]))
def test_every_operation_keeps_the_invariants(open_engine, variant, schedule, step, ride):
    stage = Stage(open_engine, variant, max_step_tokens=step, chunk_tokens=3, ride_rows=ride)
    try:
        for which, operation in schedule:
            stage.do(which, operation)
        stage.finish()
    except AssertionError:
        assume(stage.margin > 1e-4)  # where two tokens are as worth repairing, rounding chooses
        raise
    finally:
        stage.engine.close()
