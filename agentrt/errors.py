"""Every error the package raises on purpose.

AgentrtError                  exit code 1; all others derive from it
├── UsageError                exit code 2; also a ValueError
│   ├── ConfigError           a YAML or settings file: carries every problem with file:line:col
│   ├── DataError             a row of a dataset, corpus or trajectory file
│   ├── SchemeError           a scheme or option that does not exist, or that these adapters do not allow
│   └── RunBusyError          a run folder that another process is working on
├── ToolHealthError           exit code 4; a tool cannot work, since its key is not set
├── ResourceError             exit code 5; also where memory ran out in a step
│   ├── BackboneError         a model that is missing, damaged or of an unsupported family
│   ├── AdapterError          an adapter that is refused, with the feature and the fix
│   └── CacheFullError        a turn that does not fit the KV budget; the session stays usable
└── EngineError               exit code 1
    ├── EngineClosedError     the engine or session was closed, or is draining
    ├── ForkedError           used in a process that was forked after the engine was loaded
    ├── SessionBusyError      a turn of the session is still waiting or running
    ├── TurnCancelledError    the turn was cancelled; the session is at its last turn boundary
    └── QueueFullError        more turns are waiting than the engine accepts

A message names the value, the place and the fix. Tools have an error type of their own
(`agentrt_tools.ToolFailed`), because they do not know this package.
"""

from typing import ClassVar, NamedTuple


class AgentrtError(Exception):
    """Root of the tree. `exit_code` is what the command line ends with."""

    exit_code: ClassVar[int] = 1


class UsageError(AgentrtError, ValueError):
    """The caller asked for something that cannot be done as asked."""

    exit_code = 2


class Problem(NamedTuple):
    """One fault in a file; line and column count from 1, 0 where the file has no such place."""

    file: str
    line: int
    column: int
    message: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        return f"{place}: {self.message}"


class ConfigError(UsageError):
    """A configuration file with one or more problems, all of them listed."""

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = problems
        super().__init__("\n".join(str(problem) for problem in problems))


class DataError(UsageError):
    """A row of a data file cannot be used; the message starts with file:line."""


class SchemeError(UsageError):
    """Unknown scheme or option, or one that these adapters do not allow."""


class RunBusyError(UsageError):
    """Another process, or another run of this one, works on the run folder. Nothing in it was touched."""


class ToolHealthError(AgentrtError):
    """A tool cannot work: its key is not set. Failures in an episode are no errors; they are in its tool health."""

    exit_code = 4


class ResourceError(AgentrtError):
    """Something the run needs is missing, refused or too small."""

    exit_code = 5


class BackboneError(ResourceError):
    """The backbone is missing, damaged or of a family that is not supported."""


class AdapterError(ResourceError):
    """An adapter is refused: the message names the feature and the fix."""


class CacheFullError(ResourceError):
    """A turn would not fit the KV budget. Raised before anything is reserved.

    `needed_bytes` must be free or its session's own for it to fit; 0 where more room in the budget would not help.
    """

    def __init__(self, message: str, needed_bytes: int = 0) -> None:
        super().__init__(message)
        self.needed_bytes = needed_bytes


class EngineError(AgentrtError):
    """The engine cannot serve this request."""


class EngineClosedError(EngineError):
    """The engine or the session was closed, or the engine is draining."""


class ForkedError(EngineError):
    """This process was forked from the one the engine lives in; its threads are not here."""


class SessionBusyError(EngineError):
    """A turn of the session is still waiting or running: a session takes one at a time. Nothing was changed."""


class TurnCancelledError(EngineError):
    """The turn was cancelled; its session is back at the last turn boundary."""


class QueueFullError(EngineError):
    """More turns are waiting than the engine accepts; try again later."""
