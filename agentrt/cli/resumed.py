"""The runtime that a saved run asks for, on this machine."""

from pathlib import Path

from agentrt.cli.backbone import use_threads
from agentrt.cli.served import require_served
from agentrt.config.scheme import parse_scheme
from agentrt.config.settings import Resolved
from agentrt.config.team import Override
from agentrt.runtime.episode import Runtime
from agentrt.runtime.saved import SavedRun


def open_saved(
    saved: SavedRun, resolved: Resolved, *, scheme: str | None, cassette: Path | None, out: Path | None
) -> Runtime:
    """Its team, with the changes of `--set`, and its resources; device, threads and budget may be other ones.

    `cassette` replaces the tools. Raises ConfigError, UsageError, DataError or ToolHealthError.
    """
    settings, resources = resolved.settings, saved.resources
    chosen = parse_scheme(scheme or saved.scheme)
    changes = Override(("scheme",), {"name": chosen.name, **chosen.options}, f"scheme {scheme or saved.scheme}")
    team = saved.saved_team.load(overrides=(changes, *resolved.overrides))
    require_served(team)
    use_threads(settings)
    played = cassette or resources.cassette
    return Runtime(
        team,
        corpus=resources.corpus,
        record=None if played is not None else resources.record,
        cassette=played,
        out=out,
        dtype=resources.dtype,
        device=resources.device if settings.device == "auto" else settings.device,
        offline=settings.offline or resources.offline,
        backend=resources.backend,
        cuda_graphs=resources.cuda_graphs,
        kv_budget=settings.kv_budget or resources.kv_budget,
        adapters=resources.adapters,
    )
