"""The runtime that a saved run asks for, on this machine."""

from pathlib import Path
from typing import Any

from agentrt.cli.backbone import use_threads
from agentrt.cli.served import require_served
from agentrt.config.scheme import parse_scheme
from agentrt.config.settings import Resolved
from agentrt.config.team import Override, Team
from agentrt.errors import UsageError
from agentrt.runtime.episode import Runtime
from agentrt.runtime.saved import SavedRun
from agentrt_tools import needs_corpus


def open_saved(saved: SavedRun, resolved: Resolved, *, cassette: Path | None, out: Path | None) -> Runtime:
    """Its team, with the changes of `--set`, and its resources, with those that the settings name in their place.

    A scheme and a corpus are taken from the command line only: what weaker sources say of them is meant for new runs.
    `cassette` replaces the tools. Raises ConfigError, UsageError, BackboneError, DataError or ToolHealthError.
    """
    settings, resources = resolved.settings, saved.resources
    team = _team(saved, resolved)
    require_served(team)
    use_threads(settings)
    played = cassette or resources.cassette

    def chosen(name: str) -> Any:
        return getattr(resources if resolved.origins[name] == "default" else settings, name)

    return Runtime(
        team,
        corpus=_corpus(saved, resolved, team if played is None else None),
        record=None if played is not None else resources.record,
        cassette=played,
        out=out,
        dtype=resources.dtype,
        device=chosen("device"),
        offline=settings.offline or resources.offline,
        backend=chosen("backend"),
        cuda_graphs=chosen("cuda_graphs"),
        kv_budget=chosen("kv_budget"),
        adapters=resources.adapters,
    )


def _team(saved: SavedRun, resolved: Resolved) -> Team:
    """The saved team already has what settings files said of it when the run began."""
    text, origin = saved.scheme, f"the scheme of run {saved.run_id}"
    if resolved.given("scheme") and resolved.settings.scheme is not None:
        text, origin = resolved.settings.scheme, resolved.origins["scheme"]
    change = Override(("scheme",), parse_scheme(text).model_dump(), origin)
    return saved.saved_team.load(overrides=(change, *resolved.sets))


def _corpus(saved: SavedRun, resolved: Resolved, reader: Team | None) -> str | None:
    """The run's corpus, or the copy of it that `--set corpus=FILE` names. `reader`: the team, if its tools are opened.

    Raises UsageError for another corpus, and where the tools read one that is no longer there.
    """
    if resolved.given("corpus") and resolved.settings.corpus is not None:
        saved.check_corpus(resolved.settings.corpus)
        return resolved.settings.corpus
    corpus = saved.resources.corpus
    needed = reader is not None and any(needs_corpus(tool.use) for tool in reader.tools.values())
    if needed and corpus is not None and not Path(corpus).is_file():
        raise UsageError(f"the run's corpus {corpus} is not there: name a copy of it with --set corpus=FILE")
    return corpus
