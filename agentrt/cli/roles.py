"""`agentrt roles`: look at a team before it runs. No weights are loaded."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentrt.cli import roles_init, roles_parse
from agentrt.cli.options import Json, Quiet, SchemeName, Sets, Verbose, resolve_settings
from agentrt.cli.output import Output

if TYPE_CHECKING:
    from agentrt.config.team import Team

app = typer.Typer(no_args_is_help=True, help="The roles, tools and flow of a team.")

TeamArgument = Annotated[str | None, typer.Argument(help="A built-in team, or a team file; default: the one in use.")]


@app.callback()
def _roles() -> None:
    pass


@app.command()
def check(
    team: TeamArgument = None,
    scheme: SchemeName = None,
    sets: Sets = [],  # noqa: B006 - typer reads the default and copies it
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Check a team file with its adapters, tools and scheme; exit code 2 and file:line:col for each problem."""
    from agentrt.config.team import check_scheme
    from agentrt.errors import ConfigError
    from agentrt.schemes import SCHEMES

    loaded = _load(team, scheme, sets)
    if problems := check_scheme(loaded, {name: kind.option_names() for name, kind in SCHEMES.items()}):
        raise ConfigError(problems)
    from agentrt.cli.served import check_served
    from agentrt.config.problems import in_order

    if problems := check_served(loaded):
        raise ConfigError(in_order(problems))
    out = Output(as_json=as_json, quiet=quiet)
    counts = {"roles": len(loaded.roles), "tools": len(loaded.tools), "nodes": len(loaded.flow.nodes)}
    out.record({"event": "team_checked", "team": loaded.name, "file": loaded.source, **counts})
    listed = ", ".join(f"{count} {name}" for name, count in counts.items())
    out.result(f"{loaded.source} is in order: {listed}, scheme {loaded.scheme}")


@app.command()
def show(
    team: TeamArgument = None,
    sets: Sets = [],  # noqa: B006 - typer reads the default and copies it
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Show a team's roles with their adapters, its tools, and what follows what."""
    from agentrt.config.flow import ToolNode

    loaded = _load(team, None, sets)
    out = Output(as_json=as_json, quiet=quiet)
    out.say(f"{loaded.name or loaded.source}: base {loaded.base.model}, scheme {loaded.scheme}")
    adapters = loaded.adapters()
    facts = {name: _adapter_facts(adapters[name]) if name in adapters else {} for name in loaded.roles}
    roles = []
    for name, role in loaded.roles.items():
        writes = [node.emits for node in loaded.flow.role_nodes().values() if node.role == name]
        out.record({"event": "role", "name": name, "adapter": role.adapter, "writes": writes, **facts[name]})
        about = ", ".join(f"{key} {value}" for key, value in facts[name].items())
        roles.append((name, role.adapter, about, ", ".join(writes), f"temperature {role.sampling.temperature:g}"))
    out.table(("role", "adapter", "of", "writes", "sampling"), roles)
    for name, tool in loaded.tools.items():
        out.record({"event": "tool", "name": name, "use": tool.use, "options": tool.options})
    tools = ((name, tool.use, json.dumps(tool.options)) for name, tool in loaded.tools.items())
    out.table(("tool", "use", "options"), tools)
    nodes = []
    for name, node in loaded.flow.nodes.items():
        does = "calls the tool" if isinstance(node, ToolNode) else f"{node.role} writes {node.emits}"
        then = node.next if isinstance(node.next, str) else ", ".join(f"{k}: {v}" for k, v in node.next.items())
        out.record({"event": "node", "name": name, "does": does, "next": node.model_dump()["next"]})
        nodes.append((name, does, then))
    out.table(("node", "does", "next"), nodes)


@app.command()
def schema() -> None:
    """Print the JSON schema of team files, for editors."""
    from agentrt.config.schema import team_schema

    typer.echo(team_schema(), nl=False)


app.command("init")(roles_init.init)
app.command("parse")(roles_parse.parse)


def _load(team: str | None, scheme: str | None, sets: list[str]) -> "Team":
    return resolve_settings({"team": team, "scheme": scheme}, sets).load_team()


def _adapter_facts(folder: Path) -> dict[str, Any]:
    """Rank, alpha, targets and size, as the adapter's folder tells them."""
    config = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))
    targets = config.get("target_modules")
    size = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    return {
        "rank": config.get("r"),
        "alpha": config.get("lora_alpha"),
        "targets": "+".join(sorted(targets)) if isinstance(targets, list) else targets,
        "bytes": size,
    }
