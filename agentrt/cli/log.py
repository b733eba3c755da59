"""`agentrt log show`: a run, from its folder, in the terminal or as one page."""

from pathlib import Path
from typing import Annotated

import typer

from agentrt.cli.options import Json, Out, Quiet, Verbose, resolve_settings
from agentrt.cli.output import Output

app = typer.Typer(no_args_is_help=True, help="Look at runs.")


@app.callback()
def _root() -> None:
    pass


@app.command()
def show(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run's id, or its folder.")],
    html: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write one page instead.")] = None,
    out_dir: Out = None,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Show a run: turns by role, tool calls and failures, and for each turn where its tokens came from.

    A run that is still going on, or that a crash ended, is shown as far as it came. The page needs no network.
    """
    settings = resolve_settings({"out": out_dir}, []).settings

    from agentrt.cli.episode_view import EpisodeView
    from agentrt.cli.log_page import page
    from agentrt.cli.turn_costs import MARKS, Read, bar, cost, read_of
    from agentrt.config.sections import DialectConfig
    from agentrt.runtime.events import TurnFinished, to_json
    from agentrt.runtime.runlog import read_run
    from agentrt.runtime.saved import run_folder

    out = Output(as_json=as_json, quiet=quiet)
    logged = read_run(run_folder(run, Path(settings.out)))
    events = logged.standing()
    if html is not None:
        html.parent.mkdir(parents=True, exist_ok=True)
        html.write_text(page(logged.header, events), encoding="utf-8")
        out.result(f"wrote {html}")
        return
    view = EpisodeView(out, DialectConfig())
    for event in events:
        out.raw(to_json(event))
        view.show(event)
    turns = [event for event in events if isinstance(event, TurnFinished)]
    most = max((read_of(event).total for event in turns), default=1)
    rows = [(event.turn, event.role, event.emits, bar(read_of(event), most), *cost(event)) for event in turns]
    legend = ", ".join(f"{mark} {part}" for mark, part in zip(MARKS, Read._fields, strict=True))
    out.say(f"\ntokens of each turn: {legend}", style="dim")
    columns = ("turn", "role", "field", "read", *Read._fields, "generated", "TTFT", "KV")
    out.table(columns, rows, right=("turn", *columns[4:]))
