"""`agentrt roles`: look at a team before it runs. No weights are loaded."""

import json
from pathlib import Path
from typing import Any

import typer

from agentrt.cli import roles_check, roles_init, roles_parse
from agentrt.cli.options import Json, Quiet, Sets, TeamArgument, Verbose, load_team
from agentrt.cli.output import Output

app = typer.Typer(no_args_is_help=True, help="The roles, tools and flow of a team.")


@app.callback()
def _roles() -> None:
    pass


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

    loaded = load_team(team, None, sets)
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
def schema(as_json: Json = False, quiet: Quiet = False, verbose: Verbose = False) -> None:
    """Print the JSON schema of team files, for editors; with --json on one line."""
    from agentrt.config.schema import team_schema

    if as_json:
        Output(as_json=True).record(json.loads(team_schema()))
    else:
        typer.echo(team_schema(), nl=False)


app.command("check")(roles_check.check)
app.command("init")(roles_init.init)
app.command("parse")(roles_parse.parse)


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
