"""`agentrt drift`: which sharing scheme a team's adapters want, measured on trajectories forced through the model."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentrt.cli.options import Device, Json, Offline, Quiet, Seed, Sets, TeamName, Threads, Verbose, resolve_settings
from agentrt.cli.output import Output
from agentrt.cli.samples import (
    AdapterFolders,
    Corpus,
    Limit,
    Questions,
    SampleFiles,
    Trajectories,
    read_samples,
)

if TYPE_CHECKING:
    from agentrt.evaluate.drift.job import Drift
    from agentrt.evaluate.fidelity import Estimate


def drift(
    trajectories: Trajectories = None,
    questions: Questions = None,
    corpus: Corpus = None,
    limit: Limit = 40,
    schemes: Annotated[
        str, typer.Option("--schemes", metavar="core|all|NAME,...", help="What to hold against non_shared.")
    ] = "core",
    dtype: Annotated[
        str, typer.Option("--dtype", help="float32, or another dtype of the model; rounding counts as drift.")
    ] = "float32",
    plot: Annotated[Path | None, typer.Option("--plot", metavar="DIR", help="Draw drift.png into this folder.")] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write the result as JSON here too.")
    ] = None,
    rows: Annotated[
        Path | None,
        typer.Option("--rows", metavar="FILE", help="Keep each trajectory here (JSONL), and go on where it ends."),
    ] = None,
    team: TeamName = None,
    adapters: AdapterFolders = None,
    device: Device = None,
    threads: Threads = None,
    seed: Seed = None,
    offline: Offline = None,
    sets: Sets = [],  # noqa: B006 - typer reads the default and copies it
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Measure how far shared caches lie from each agent's own, and which scheme the adapters should use.

    Sample trajectories are forced through the model under every scheme: KL of the next-token distributions against
    non_shared, by role, and PReCache's figures of each handover. Nothing is sampled. The last line says what follows.
    """
    from agentrt.errors import UsageError
    from agentrt.evaluate.figures import require_matplotlib

    if plot is not None:
        require_matplotlib()
    if out is not None:
        if out.is_dir():
            raise UsageError(f"--out {out}: a folder; name a file, {out / 'drift.json'}")
        out.parent.mkdir(parents=True, exist_ok=True)
    named = SampleFiles(trajectories, questions, corpus)
    named.check()
    flags = {"team": team, "seed": seed, "offline": offline, "device": device, "threads": threads}
    resolved = resolve_settings(flags, sets)
    settings, crew = resolved.settings, resolved.load_team(adapters=adapters)
    folders = crew.adapters()

    from agentrt.evaluate.drift.schemes import parse_drift_schemes

    parse_drift_schemes(schemes, tuple(folders))  # what is misspelled is refused before a model is loaded
    from agentrt.cli.backbone import load_backbone
    from agentrt.evaluate.drift.job import run_drift
    from agentrt.evaluate.drift.result import declare_drift, draw, to_record
    from agentrt.evaluate.lines import replace_file
    from agentrt.model.progress import progress_bar

    output = Output(as_json=as_json, quiet=quiet)
    with progress_bar(quiet=quiet) as report:
        backbone = load_backbone(crew, settings, dtype)
        samples = read_samples(crew, backbone, named, limit=limit, seed=settings.seed, report=report, say=output.say)
        loaded = backbone.load_adapters(folders)
        found = run_drift(backbone, loaded, samples, schemes=schemes, rows=rows, report=report)
    record = to_record(found, declare_drift(backbone, loaded, settings.seed))
    output.record(record)
    if out is not None:
        replace_file(out, json.dumps(record, ensure_ascii=False, indent=1) + "\n")
    for each in found.left_out:
        output.say(f"left out {each.label}: {each.reason}")
    _show(output, found, record)
    if plot is not None:
        output.say(f"drew {draw(found.geometry, plot / 'drift.png')}")
    output.result(found.sentence, style="bold")


def _show(output: Output, found: "Drift", record: dict[str, Any]) -> None:
    """Tables for people: divergence and cost of each scheme, then the figures of handovers."""
    roles = list(found.reference.by_role)
    output.result(
        f"\n{record['trajectories']} trajectories of {record['tokens']:,} tokens, {record['generated_tokens']:,} "
        "generated: KL of the next token against non_shared, in nats",
        style="bold",
    )
    columns = ("scheme", "KL", "95 %", *roles, "rows", "peak MiB")
    rows = [
        (
            each.label,
            *_spell(each.overall),
            *(_spell(each.by_role[role])[0] for role in roles),
            f"{each.rows:,.0f}",
            f"{each.kv_bytes_peak / 2**20:.2f}",
        )
        for each in (found.reference, *found.schemes)
    ]
    output.table(columns, rows, right=columns[1:])
    geometry = found.geometry
    output.result("\nhandovers, mean over layers: relative error to an agent's own state", style="bold")
    heads = ("", "of", "previous", "neutral", "rho", "cos", "Gamma_err", "neutral closer", "tokens")
    lines = []
    for part in ("hidden", "base", "full"):
        for transition in (None, *geometry.transitions):
            figures = geometry.overall(part, transition).figures
            shown = (figures.previous, figures.neutral, figures.rho, figures.cos, figures.gamma)
            share = "-" if figures.closer is None else f"{figures.closer:.0%}"
            tokens = f"{figures.tokens // geometry.num_layers:,}"
            lines.append((part, transition or "all", *("-" if v is None else f"{v:.3f}" for v in shown), share, tokens))
    output.table(heads, lines, right=heads[2:])


def _spell(estimate: "Estimate") -> tuple[str, str]:
    interval = estimate.ci95
    return f"{estimate.mean:.4f}", "-" if interval is None else f"{interval.low:.4f} to {interval.high:.4f}"
