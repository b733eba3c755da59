"""A team's tools by the name the model writes, each under its own timeout and retries; recorded, or played back."""

import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

from agentrt.config.team import Team
from agentrt.errors import ConfigError, DataError, ToolHealthError, UsageError
from agentrt_tools import (
    CallRequest,
    Cassette,
    CassetteError,
    CorpusError,
    Recorder,
    RetryPolicy,
    Tool,
    ToolCall,
    ToolOptionError,
    ToolRunner,
    missing_secrets,
    needs_corpus,
    open_tool,
)

_POLL_S: Final = 0.05


class Toolbox:
    """Several episodes may share one: what an episode has read is in its own state.

    `names`: action -> what events call its tool. `recorder` writes every call; with `cassette` no tool is called.
    """

    def __init__(
        self,
        tools: Mapping[str, Tool],
        policies: Mapping[str, RetryPolicy] | None = None,
        *,
        names: Mapping[str, str] | None = None,
        recorder: Recorder | None = None,
        cassette: Cassette | None = None,
    ) -> None:
        self._tools = dict(tools)
        self._names = dict(names or {name: tool.name for name, tool in tools.items()})
        self._runners = {name: ToolRunner((policies or {}).get(name)) for name in tools}
        self._recorder, self._cassette = recorder, cassette

    @classmethod
    def open(
        cls,
        team: Team,
        corpus: Path | None,
        given: Mapping[str, Tool] | None = None,
        *,
        record: Path | None = None,
        cassette: Path | None = None,
    ) -> Self:
        """The tools of a team file; those in `given` replace the declared ones of their names.

        record: a folder to write every call to. cassette: a folder to play calls from; no tool is opened then.
        Raises ConfigError for an option that does not fit, UsageError for a missing corpus, DataError for a bad one
        or a bad cassette, ToolHealthError for a tool whose key is not set.
        """
        given = given or {}
        check_names(given, team)
        if record is not None and cassette is not None:
            raise UsageError("either record calls or play them: give --record or --cassette")
        names = {name: given[name].name if name in given else tool.use for name, tool in team.tools.items()}
        if cassette is not None:
            try:
                return cls({}, names=names, cassette=Cassette(cassette))
            except CassetteError as error:
                raise DataError(str(error)) from None
        policies = {
            name: RetryPolicy(
                timeout_s=tool.timeout_s,
                total_s=max(30.0, tool.timeout_s * (tool.retries + 1)),
                attempts=tool.retries + 1,
            )
            for name, tool in team.tools.items()
        }
        tools = {name: given.get(name) or _open(team, name, corpus) for name in team.tools}
        return cls(tools, policies, names=names, recorder=None if record is None else Recorder(record))

    def __contains__(self, action: object) -> bool:
        return action in self._names

    def name(self, action: str) -> str:
        """What events call the tool of an action; "" for an action without one."""
        return self._names.get(action, "")

    def call(self, asked: CallRequest, stop: Callable[[], object]) -> ToolCall | None:
        """Call the tool of `asked.action`; never raises for what the tool does, and ends even if the tool hangs.

        None if `stop` became true first, which is asked now and then; the tool is left behind. Raises DataError for a
        call that the cassette does not hold.
        """
        if self._cassette is not None:
            try:
                return self._cassette.play(asked)
            except CassetteError as error:
                raise DataError(str(error)) from None
        call = self._wait(asked, stop)
        if call is not None and self._recorder is not None:
            self._recorder.record(asked, call)
        return call

    def _wait(self, asked: CallRequest, stop: Callable[[], object]) -> ToolCall | None:
        answered: Future[ToolCall] = Future()
        tool, runner = self._tools[asked.action], self._runners[asked.action]

        def work() -> None:
            try:
                answered.set_result(runner.call(tool, asked.argument, asked.state, question=asked.question))
            except BaseException as error:  # raised again by `result`
                answered.set_exception(error)

        threading.Thread(target=work, name=f"agentrt-tool {asked.action}", daemon=True).start()
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
        if missing := missing_secrets(tool.use):
            raise ToolHealthError(
                f"the tool {name} ({tool.use}) needs {' and '.join(missing)}: set it in the environment or in .env"
            )
        return open_tool(tool.use, tool.options, corpus=corpus, root=team.root)
    except ToolOptionError as error:
        place = ("tools", name, error.option or "use")
        raise ConfigError([team.problem(place, str(error))]) from None
    except CorpusError as error:
        raise DataError(str(error)) from error
