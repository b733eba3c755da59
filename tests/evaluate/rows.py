"""Rows of an evaluation that nobody played."""

from typing import Any

from agentrt.evaluate.evaluation.plan import Episode
from agentrt.evaluate.evaluation.row import EpisodeRow, row_of
from agentrt.questions.question import Question
from agentrt.runtime.events import RoleUsage, Timing
from agentrt.runtime.result import EpisodeResult, EpisodeSpan
from agentrt_tools import ToolHealth


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
