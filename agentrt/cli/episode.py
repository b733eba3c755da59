"""Plays one episode to the screen and tells its exit code."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from agentrt.cli.episode_view import EpisodeView
from agentrt.cli.output import Output
from agentrt.evaluate.scoring import score
from agentrt.questions.datasets import Question
from agentrt.runtime.episode import Runtime
from agentrt.runtime.events import RunFinished, RunStarted, to_json
from agentrt.runtime.result import EpisodeResult
from agentrt_tools import Json, ToolHealth

NO_ANSWER: Final = 3
TOOLS_FAILED: Final = 4


def play(runtime: Runtime, asked: str | Question, out: Output, *, tokens: bool, folder: Path) -> int:
    """Stream the episode; a benchmark question is scored. `folder` is where the run folder lies.

    Returns the process's exit code. Raises what broke the run, and KeyboardInterrupt with the run's id in it.
    """
    gold = asked if isinstance(asked, Question) else None
    view = EpisodeView(out, runtime.team.dialect, gold.answer if gold else None)
    code, run_id = NO_ANSWER, ""

    def scorer(result: EpisodeResult) -> Mapping[str, Json]:
        assert gold is not None
        scored = score(gold, result.answer, finished=result.status == "finished")
        return {"correct": scored.correct, "f1": scored.f1, "id": gold.id, "gold": gold.answer}

    text = gold.text if gold else str(asked)
    try:
        for event in runtime.stream(text, score=scorer if gold else None, tokens=tokens):
            out.raw(to_json(event))
            view.show(event)
            if isinstance(event, RunStarted):
                run_id = event.run_id
            if isinstance(event, RunFinished):
                code = exit_code(event)
    except KeyboardInterrupt as stop:
        where = f"run {run_id}, so far in {folder / run_id}" if run_id else "before the run began"
        raise type(stop)(where) from None
    return code


def exit_code(event: RunFinished) -> int:
    """0 with an answer; 3 without one; 4 where tools were the reason: too many failures, or no key or credits."""
    if event.status == "finished" and event.answer is not None:
        return 0
    health = ToolHealth.from_json(event.tool_health)
    return TOOLS_FAILED if event.status == "limit:tool_errors" or health.locked_out else NO_ANSWER
