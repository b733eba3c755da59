"""The mini benchmark on the default backbone with the shipped adapters, fp32: company changes no episode."""

from collections.abc import Iterator

import pytest

from agentrt.errors import BackboneError
from agentrt.evaluate.evaluation.plan import EvalPlan
from agentrt.questions.datasets import load_questions
from agentrt.runtime.episode import Runtime
from tests.crew import CORPUS

from .rows import rows_of, same_part

pytestmark = [pytest.mark.real_model, pytest.mark.slow]


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    with Runtime("search", corpus=CORPUS, dtype="float32") as runtime:
        try:
            _ = runtime.engine
        except BackboneError as error:
            pytest.skip(f"the default backbone cannot be had here: {error}")
        yield runtime


def test_one_at_a_time_and_four_at_once_play_the_same_episodes(runtime: Runtime) -> None:
    questions = tuple(load_questions("mini"))[:4]
    alone, together = (rows_of(runtime, EvalPlan("mini", questions, concurrency=each)) for each in (1, 4))
    assert len(alone) == 4
    assert {row.key: same_part(row) for row in alone} == {row.key: same_part(row) for row in together}
    assert runtime.health().runs == 0
