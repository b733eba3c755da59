"""`agentrt roles init`: a team to start from."""

from pathlib import Path
from typing import Annotated

import typer

from agentrt.cli.options import Json, Quiet, Verbose
from agentrt.cli.output import Output
from agentrt.errors import UsageError


def init(
    folder: Annotated[Path, typer.Argument(metavar="[DIR]", help="A folder; it is made if it is not there.")] = Path(
        "team"
    ),
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Write a starting team: DIR/team.yaml, and its JSON schema for editors. Nothing is ever overwritten."""
    from agentrt.builtin import configs_dir
    from agentrt.config.schema import team_schema

    texts = {
        folder / "team.yaml": (configs_dir() / "starter" / "team.yaml").read_text(encoding="utf-8"),
        folder / "team.schema.json": team_schema(),
    }
    if there := [str(file) for file in texts if file.exists()]:
        raise UsageError(f"{' and '.join(there)} exists already and is left alone: name another folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file, text in texts.items():
            with file.open("x", encoding="utf-8", newline="\n") as draft:
                draft.write(text)
    except OSError as error:
        raise UsageError(f"{folder}: cannot write a team there: {error.strerror or error}") from None
    out = Output(as_json=as_json, quiet=quiet)
    for file in texts:
        out.record({"event": "written", "file": str(file)})
    team = folder / "team.yaml"
    out.result(f"wrote {team}; try: agentrt roles check {team}")
