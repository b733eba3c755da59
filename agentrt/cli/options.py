"""Options that several commands share, spelled once."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

if TYPE_CHECKING:
    from agentrt.config.settings import Resolved
    from agentrt.config.team import Team

JSON_KEY: Final = "agentrt.json"
VERBOSE_KEY: Final = "agentrt.verbose"
"""Where the context remembers what an error message needs to know."""


def _remember(key: str) -> Any:
    def callback(context: typer.Context, value: Any) -> Any:
        context.meta[key] = value
        return value

    return callback


Json = Annotated[
    bool,
    typer.Option("--json", help="One JSON object a line on stdout; text goes to stderr.", callback=_remember(JSON_KEY)),
]
Verbose = Annotated[
    bool, typer.Option("-v", "--verbose", help="More detail, tracebacks too.", callback=_remember(VERBOSE_KEY))
]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="Only results and errors.")]
Sets = Annotated[
    list[str],
    typer.Option("--set", metavar="NAME=VALUE", help="A setting, or a value of the team file: limits.max_steps=5."),
]
TeamArgument = Annotated[str | None, typer.Argument(help="A built-in team, or a team file; default: the one in use.")]
TeamName = Annotated[str | None, typer.Option("--team", metavar="NAME|FILE", help="A built-in team, or a team file.")]
SchemeName = Annotated[
    str | None,
    typer.Option(
        "--scheme", metavar="NAME[:OPTIONS]", help="How agents share the cache; `agentrt schemes` lists them."
    ),
]
Device = Annotated[str | None, typer.Option("--device", help="auto, cpu or cuda.")]
Threads = Annotated[int | None, typer.Option("--threads", help="Processor threads for the model.")]
KVBudget = Annotated[
    str | None,
    typer.Option("--kv-budget", metavar="GIB|TOKENSt", help="Most that the caches may hold, e.g. 1.5 or 20000t."),
]
BenchmarkData = Annotated[Path | None, typer.Option("--data", metavar="FILE", help="The benchmark's questions.")]
Split = Annotated[str, typer.Option("--split", help="train, eval ...; all; auto: eval of what is shipped, else all.")]
ToolCorpus = Annotated[
    Path | None, typer.Option("--corpus", metavar="FILE", help="What the offline tools search (JSONL).")
]
ToolWait = Annotated[float, typer.Option("--tool-wait", metavar="S", help="Sleep after each call that calls a tool.")]
RandomSpec = Annotated[
    str | None,
    typer.Option("--random-adapters", metavar="r=8,targets=qv,n=3,alpha=16", help="Instead of the team's."),
]
RideRows = Annotated[
    int | None,
    typer.Option("--ride-rows", min=0, help="Rows of schedule auto beside a decoded token. Default: measured."),
]
Seed = Annotated[int | None, typer.Option("--seed", help="Of random draws: the same seed, the same draws.")]
Out = Annotated[str | None, typer.Option("--out", metavar="DIR", help="Where run folders go.")]
Record = Annotated[Path | None, typer.Option("--record", metavar="DIR", help="Write every tool call to this folder.")]
CassetteDir = Annotated[
    Path | None, typer.Option("--cassette", metavar="DIR", help="Play tool calls from this folder; call no tool.")
]
Offline = Annotated[bool | None, typer.Option("--offline/--online", help="Never download anything.")]


def resolve_settings(flags: Mapping[str, Any], sets: Sequence[str]) -> "Resolved":
    """The settings of this process: see `agentrt.config.settings.resolve`."""
    import os

    from agentrt.config.settings import FILE_NAME, resolve, user_file

    return resolve(flags=flags, sets=sets, environ=os.environ, files=[user_file(), Path(FILE_NAME)])


def load_team(team: str | None, scheme: str | None, sets: Sequence[str]) -> "Team":
    """The team of a command that takes no other settings. Raises ConfigError and UsageError."""
    return resolve_settings({"team": team, "scheme": scheme}, sets).load_team()
