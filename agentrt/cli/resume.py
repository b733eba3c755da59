"""`agentrt resume`: go on with a run after a crash, fork it, or run it again on its cassette and compare."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agentrt.cli.options import (
    CassetteDir,
    Device,
    Json,
    Offline,
    Out,
    Quiet,
    SchemeName,
    Sets,
    Threads,
    Verbose,
    resolve_settings,
)
from agentrt.cli.output import Output
from agentrt.errors import UsageError

if TYPE_CHECKING:
    from agentrt.config.settings import Resolved
    from agentrt.runtime.saved import FoundRun


def resume(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run's id, or its folder.")],
    at_turn: Annotated[
        int | None, typer.Option("--at-turn", min=0, help="Fork: begin a new run with the first so many turns.")
    ] = None,
    scheme: SchemeName = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Run it again on its recorded tool calls and compare the tokens.")
    ] = False,
    cassette: CassetteDir = None,
    device: Device = None,
    threads: Threads = None,
    stream: Annotated[
        bool | None, typer.Option("--stream/--no-stream", help="Token by token; default: unless --json or --quiet.")
    ] = None,
    out_dir: Out = None,
    offline: Offline = None,
    sets: Sets = [],  # noqa: B006 - typer reads the default and copies it
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Go on with a run that was interrupted, in its own folder, with the tokens it would have had.

    With --at-turn a new run begins as that one was after so many turns, under another --scheme if you like.
    With --verify nothing is written; exit code 1 where a token differs.
    """
    if verify and at_turn is not None:
        raise UsageError("--verify runs the whole episode again: leave --at-turn out")
    flags = {"scheme": scheme, "out": out_dir, "offline": offline, "device": device, "threads": threads}
    resolved = resolve_settings(flags, sets)
    _refuse_what_the_run_decides(resolved, fork=at_turn is not None)

    from agentrt.cli.episode import Asked, play
    from agentrt.cli.resumed import open_saved
    from agentrt.cli.verify import verify_run
    from agentrt.runtime.saved import find_run

    out = Output(as_json=as_json, quiet=quiet)
    found = find_run(run, Path(resolved.settings.out))
    folder = found.folder.parent
    tape = cassette or (_tape(found) if verify else None)
    with open_saved(found.saved, resolved, cassette=tape, out=None if verify else folder) as runtime:
        if verify:
            code = verify_run(runtime, found, out)
        else:
            tokens = not (as_json or quiet) if stream is None else stream
            asked = Asked.saved(found.saved)
            events = runtime.stream_resumed(found.folder, at_turn=at_turn, tokens=tokens, score=asked.scorer)
            code = play(runtime.team, asked, events, out, folder=folder)
    if code:
        raise typer.Exit(code)


def _refuse_what_the_run_decides(resolved: "Resolved", *, fork: bool) -> None:
    """Raises UsageError for a setting of this command line that the run has its own of."""
    if resolved.given("scheme") and not fork:
        origin = resolved.origins["scheme"]
        raise UsageError(f"{origin}: a run goes on under its own scheme; fork it with --at-turn N --scheme S")
    for name in ("team", "seed"):
        if resolved.given(name):
            raise UsageError(f"{resolved.origins[name]}: a run keeps its {name}; begin another with `agentrt run`")


def _tape(found: "FoundRun") -> Path | None:
    """Where the run's tool calls were recorded, or played from."""
    recorded = found.saved.resources.cassette or found.saved.resources.record
    if recorded is None and found.saved.saved_team.values.get("tools"):
        raise UsageError(f"run {found.saved.run_id} recorded no tool calls: name them with --cassette DIR")
    return Path(recorded) if recorded is not None else None
