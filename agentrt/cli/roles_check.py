"""`agentrt roles check`: whether a team can run, agrees with what it was trained on, and what its roles will read."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agentrt.cli.options import Json, Quiet, SchemeName, Sets, TeamArgument, Verbose, load_team
from agentrt.cli.output import Output

if TYPE_CHECKING:
    from agentrt.config.team import Team
    from agentrt.errors import Problem
    from agentrt.evaluate.preview import PreviewSpan
    from agentrt.model.shape import StoredBackbone
    from agentrt.model.tokenizer import Tokenizer


def check(
    team: TeamArgument = None,
    train_data: Annotated[
        list[Path],
        typer.Option(metavar="FILE", help="What the adapters were trained on (JSON, JSONL); may be given again."),
    ] = [],  # noqa: B006 - typer reads the default and copies it
    preview: Annotated[
        bool, typer.Option("--preview", help="Show what the roles read, span by span, with token counts.")
    ] = False,
    scheme: SchemeName = None,
    sets: Sets = [],  # noqa: B006 - as above
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Check a team file with its adapters, tools and scheme; exit code 2 and file:line:col for each problem.

    No weights of the backbone are read. Where it is on this machine, adapters and scheme are held against its layers.
    """
    from agentrt.cli.served import backbone_of, check_names, check_served
    from agentrt.config.problems import in_order
    from agentrt.errors import ConfigError

    loaded = load_team(team, scheme, sets)
    check_names(loaded)
    found = backbone_of(loaded)
    out = Output(as_json=as_json, quiet=quiet)
    notes = [] if found else [f"{loaded.base.model} is not on this machine: its layers and widths were not looked at"]
    problems = check_served(loaded, found)
    for file in train_data:
        differ, lacking = _compare(loaded, file, found)
        problems += differ
        notes += lacking
    for note in notes:
        out.record({"event": "note", "text": note})
        out.say(f"note: {note}")
    if problems:
        raise ConfigError(in_order(problems))
    counts = {"roles": len(loaded.roles), "tools": len(loaded.tools), "nodes": len(loaded.flow.nodes)}
    out.record({"event": "team_checked", "team": loaded.name, "file": loaded.source, **counts})
    listed = ", ".join(f"{count} {name}" for name, count in counts.items())
    out.result(f"{loaded.source} is in order: {listed}, scheme {loaded.scheme}")
    if preview:
        _show_preview(loaded, found, out)


def _compare(team: "Team", file: Path, backbone: "StoredBackbone | None") -> "tuple[list[Problem], list[str]]":
    from agentrt.training.agreement import compare
    from agentrt.training.texts import read_training_file

    agreement = compare(team, read_training_file(file, _tokenizer(backbone)))
    return agreement.problems, [f"{file}: {note}" for note in agreement.notes]


def _tokenizer(backbone: "StoredBackbone | None") -> "Tokenizer | None":
    from agentrt.model.tokenizer import Tokenizer

    return Tokenizer.from_folder(backbone.folder) if backbone is not None else None


def _show_preview(team: "Team", backbone: "StoredBackbone | None", out: Output) -> None:
    from agentrt.errors import UsageError
    from agentrt.evaluate.preview import preview

    tokenizer = _tokenizer(backbone)
    if tokenizer is None:
        name = team.base.model
        raise UsageError(f"--preview counts tokens, and {name} is not on this machine: agentrt models fetch {name}")
    spans = preview(team, tokenizer)
    for span in spans:
        out.record({"event": "span", **span._asdict()})
    columns = ("span", "by", "text", "tokens")
    out.table(columns, [(span.kind, span.author, repr(span.text), _tokens(span)) for span in spans], right=("tokens",))
    own = [span for span in spans if span.at_most is None]
    begins = sum(span.num_tokens for span in own if span.kind == "preamble")
    out.result(f"preamble {begins} tokens; labels, ends and instructions {sum(s.num_tokens for s in own) - begins}")


def _tokens(span: "PreviewSpan") -> str:
    return str(span.num_tokens) if span.at_most is None else f"at most {span.at_most}"
