"""`agentrt config`: which settings hold here, and why."""

from typing import Annotated

import typer

from agentrt.cli.options import (
    Json,
    Offline,
    Out,
    Quiet,
    SchemeName,
    Seed,
    Sets,
    TeamName,
    Verbose,
    resolve_settings,
)
from agentrt.cli.output import Output

app = typer.Typer(no_args_is_help=True, help="Settings and where they come from.")


@app.callback()
def _config() -> None:
    pass


@app.command()
def show(
    origin: Annotated[bool, typer.Option("--origin", help="Say where each value comes from.")] = False,
    team: TeamName = None,
    scheme: SchemeName = None,
    seed: Seed = None,
    out_dir: Out = None,
    offline: Offline = None,
    sets: Sets = [],  # noqa: B006 - typer reads the default and copies it
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Show the settings a run would take: --set > flags > AGENTRT_* > ./agentrt.yaml > user file > defaults."""
    from agentrt.config.problems import looks_secret

    flags = {"team": team, "scheme": scheme, "seed": seed, "out": out_dir, "offline": offline}
    resolved = resolve_settings(flags, sets)
    out = Output(as_json=as_json, quiet=quiet)
    values = resolved.settings.model_dump(exclude={"overrides"})
    for change in resolved.overrides:
        if change.path == ("scheme",):  # the setting of that name, which is listed already
            continue
        hidden = any(map(looks_secret, change.path))
        values[".".join(("overrides", *change.path))] = "(hidden)" if hidden else change.value
    rows = []
    for name, value in values.items():
        place = resolved.origins[name]
        out.record({"event": "setting", "name": name, "value": value, **({"origin": place} if origin else {})})
        rows.append((name, "-" if value is None else value, place))
    if origin:
        out.table(("setting", "value", "origin"), rows)
    else:
        out.table(("setting", "value"), (row[:2] for row in rows))
