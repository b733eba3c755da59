"""Plays one episode to the screen and tells its exit code."""

from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from agentrt.cli.episode_view import EpisodeView
from agentrt.cli.output import Output
from agentrt.config.team import Team
from agentrt.evaluate.scoring import score
from agentrt.questions.datasets import Question
from agentrt.questions.question import SupportingFact
from agentrt.runtime.events import ANSWERED, Event, RunFinished, RunResumed, RunStarted, to_json
from agentrt.runtime.options import Scorer
from agentrt.runtime.result import EpisodeResult
from agentrt.runtime.runlog import read_result
from agentrt.runtime.saved import SavedRun
from agentrt_tools import Json, ToolHealth

NO_ANSWER: Final = 3
TOOLS_FAILED: Final = 4
_GOLD: Final = "question"


class Asked(NamedTuple):
    """A question, with its gold answer if it comes from a benchmark."""

    text: str
    gold: Question | None = None

    @classmethod
    def of(cls, asked: str | Question) -> Self:
        return cls(asked) if isinstance(asked, str) else cls(asked.text, asked)

    @classmethod
    def saved(cls, run: SavedRun) -> Self:
        """As `note` kept it in a run's folder."""
        row: Any = run.note.get(_GOLD)
        if row is None:
            return cls(run.question)
        facts = tuple(SupportingFact(*fact) for fact in row["supporting_facts"])
        lists = {name: tuple(row[name]) for name in ("choices", "titles")}
        return cls(run.question, Question(**{**row, **lists, "supporting_facts": facts}))

    @property
    def note(self) -> dict[str, Json]:
        return {} if self.gold is None else {_GOLD: self.gold.for_evaluation()}

    @property
    def scorer(self) -> Scorer | None:
        gold = self.gold
        if gold is None:
            return None

        def rate(result: EpisodeResult) -> Mapping[str, Json]:
            scored = score(gold, result.answer, finished=result.status in ANSWERED)
            return {"correct": scored.correct, "f1": scored.f1, "id": gold.id, "gold": gold.answer}

        return rate


def play(team: Team, asked: Asked, events: Generator[Event, None, None], out: Output, *, folder: Path) -> int:
    """Show the events of one episode as they come. `folder` is where the run folder lies.

    Returns the process's exit code. Raises what broke the run, and KeyboardInterrupt with the run's id in it, once the
    run has ended.
    """
    view = EpisodeView(out, team.dialect)
    code, run_id, ended = NO_ANSWER, "", False
    try:
        for event in events:
            out.raw(to_json(event))
            view.show(event)
            if isinstance(event, RunStarted | RunResumed):
                run_id = event.run_id
            if isinstance(event, RunFinished):
                code, ended = exit_code(event), True
    except KeyboardInterrupt as stop:
        if not run_id:
            raise type(stop)("before the run began") from None
        where = folder / run_id
        events.close()  # waits until the run's end is in its folder
        if not ended and (result := read_result(where)) is not None:
            out.raw(to_json(result.event()))
        raise type(stop)(f"run {run_id}, so far in {where}; go on with: agentrt resume {where}") from None
    return code


def exit_code(event: RunFinished) -> int:
    """0 with an answer; 3 without one; 4 where tools were the reason: too many failures, or no key or credits."""
    if event.status in ANSWERED and event.answer is not None:
        return 0
    health = ToolHealth.from_json(event.tool_health)
    return TOOLS_FAILED if event.status == "limit:tool_errors" or health.locked_out else NO_ANSWER
