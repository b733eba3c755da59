"""A team's tools by the name the model writes, each under its own timeout and retries."""

import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

from agentrt.config.team import Team
from agentrt.errors import ConfigError, DataError, UsageError
from agentrt_tools import (
    CorpusError,
    Json,
    RetryPolicy,
    Tool,
    ToolCall,
    ToolOptionError,
    ToolRunner,
    needs_corpus,
    open_tool,
)

_POLL_S: Final = 0.05


class Toolbox:
    """Several episodes may share one: what an episode has read is in its own state."""

    def __init__(self, tools: Mapping[str, Tool], policies: Mapping[str, RetryPolicy] | None = None) -> None:
        self._tools = dict(tools)
        self._runners = {name: ToolRunner((policies or {}).get(name)) for name in tools}

    @classmethod
    def open(cls, team: Team, corpus: Path | None, given: Mapping[str, Tool] | None = None) -> Self:
        """The tools of a team file; those in `given` replace the declared ones of their names.

        Raises ConfigError for an option that does not fit, UsageError for a missing corpus, DataError for a bad one.
        """
        given = given or {}
        check_names(given, team)
        policies = {
            name: RetryPolicy(
                timeout_s=tool.timeout_s,
                total_s=max(30.0, tool.timeout_s * (tool.retries + 1)),
                attempts=tool.retries + 1,
            )
            for name, tool in team.tools.items()
        }
        return cls({name: given.get(name) or _open(team, name, corpus) for name in team.tools}, policies)

    def __contains__(self, action: object) -> bool:
        return action in self._tools

    def __getitem__(self, action: str) -> Tool:
        return self._tools[action]

    def call(
        self, action: str, argument: str, state: Mapping[str, Json], question: str, stop: Callable[[], object]
    ) -> ToolCall | None:
        """Call the tool of an action; never raises for what the tool does, and ends even if the tool hangs.

        None if `stop` became true first, which is asked now and then; the tool is left behind.
        """
        answered: Future[ToolCall] = Future()

        def work() -> None:
            try:
                answered.set_result(self._runners[action].call(self._tools[action], argument, state, question=question))
            except BaseException as error:  # raised again by `result`
                answered.set_exception(error)

        threading.Thread(target=work, name=f"agentrt-tool {action}", daemon=True).start()
        while True:
            with suppress(TimeoutError):
                return answered.result(timeout=_POLL_S)
            if stop():
                return None


def check_names(given: Iterable[str], team: Team) -> None:
    """Raises UsageError for a tool the team does not declare, since no node could ever call it."""
    unknown = sorted(set(given) - set(team.tools))
    if unknown:
        declared = ", ".join(team.tools) or "none"
        raise UsageError(f"the team declares no tool {', '.join(map(repr, unknown))}; it declares: {declared}")


def _open(team: Team, name: str, corpus: Path | None) -> Tool:
    tool = team.tools[name]
    try:
        if corpus is None and needs_corpus(tool.use):
            raise UsageError(f"the tool {name} ({tool.use}) reads a corpus file: name one with --corpus, or corpus=")
        return open_tool(tool.use, tool.options, corpus=corpus)
    except ToolOptionError as error:
        place = ("tools", name, error.option or "use")
        raise ConfigError([team.problem(place, str(error))]) from None
    except CorpusError as error:
        raise DataError(str(error)) from error
