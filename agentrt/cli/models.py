"""`agentrt models`: get a backbone onto this machine."""

from typing import Annotated

import typer

from agentrt.cli.options import Json, Offline, Quiet, Sets, Verbose, resolve_settings
from agentrt.cli.output import Output

app = typer.Typer(no_args_is_help=True, help="Backbones on this machine.")


@app.callback()
def _models() -> None:
    pass


@app.command()
def fetch(
    name: Annotated[
        str | None, typer.Argument(help="Alias, hub id, folder or .gguf file; default: the team's own.")
    ] = None,
    offline: Offline = None,
    sets: Sets = [],  # noqa: B006 - typer reads the default and copies it
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Download and convert a backbone once, so that runs start at once and offline."""
    import time

    from agentrt.model.fetch import locate
    from agentrt.model.progress import progress_bar

    out = Output(as_json=as_json, quiet=quiet)
    settings = resolve_settings({"offline": offline}, sets)
    model = name or settings.load_team(need_adapters=False).base.model
    started = time.monotonic()
    with progress_bar(quiet=quiet) as bar:
        located = locate(model, offline=settings.settings.offline, report=bar)
    seconds = round(time.monotonic() - started, 2)
    out.record(
        {
            "event": "model_fetched",
            "name": model,
            "names": list(located.names),
            "folder": str(located.folder),
            "origin": located.origin,
            "seconds": seconds,
        }
    )
    out.result(f"{located.names[0]} is in {located.folder} (from {located.origin}, {seconds} s)")
