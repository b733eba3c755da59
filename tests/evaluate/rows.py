"""Rows of an evaluation: played, with what two of them must have in common, or made up."""

from typing import Any

import pytest

from agentrt.evaluate.evaluation.job import run_episodes
from agentrt.evaluate.evaluation.plan import Episode, EvalPlan, Key
from agentrt.evaluate.evaluation.row import EpisodeRow, row_of
from agentrt.questions.question import Question
from agentrt.runtime.episode import Runtime
from agentrt.runtime.events import RoleUsage, Timing
from agentrt.runtime.result import EpisodeResult, EpisodeSpan
from agentrt_tools import ToolHealth


def rows_of(runtime: Runtime, plan: EvalPlan, done: set[Key] | None = None) -> list[EpisodeRow]:
    rows: list[EpisodeRow] = []
    run_episodes(runtime, plan, rows.append, done=done or set())
    return rows


def same_part(row: EpisodeRow) -> dict[str, Any]:
    """All of a row but its times and the run's own name, with probabilities to rounding."""
    result = row.model_dump(exclude={"result": {"run_id", "timing", "confidence", "usage"}})
    assert row.result is not None
    confidence = row.result.confidence
    usage = {role: (u.turns, u.generated_tokens) for role, u in row.result.usage.items()}
    return {**result, "usage": usage, "confidence": None if confidence is None else pytest.approx(confidence, abs=1e-4)}


def row(question: Question, prediction: str | None, status: Any = "finished", repeat: int = 0) -> EpisodeRow:
    """A scored row without a result."""
    made = row_of(Episode(question, repeat, 0), None)
    return made.model_copy(update={"prediction": prediction, "status": status}).rescore()


def costly(
    row: EpisodeRow, *, tokens: int = 100, steps: int = 3, ttft_s: float = 0.5, turns: int = 4, turns_s: float = 3.0
) -> EpisodeRow:
    """The row with a result of `tokens` tokens; each of two roles has `turns` turns."""
    usage = RoleUsage(turns=turns, ttft_s=ttft_s, generated_tokens=10)
    result = EpisodeResult(
        run_id="r",
        question=row.question,
        team="t",
        scheme="s",
        seed=0,
        status=row.status,
        answer=row.prediction,
        confidence=None,
        verdicts=(),
        steps=steps,
        actions=(),
        usage={"plan": usage, "action": usage},
        timing=Timing(total_s=turns_s + 1, turns_s=turns_s, tools_s=1.0),
        tool_health=dict(ToolHealth().to_json()),
        parse_failures=0,
        error=None,
        spans=(EpisodeSpan(author="user", kind="question", path=None, text="", token_ids=(1,) * tokens),),
    )
    return row.model_copy(update={"result": result})
