"""`agentrt profile`: which layers the selective schemes should compute again, and the maps of ridge, measured."""

from pathlib import Path
from typing import Annotated

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


def profile(
    trajectories: Trajectories = None,
    questions: Questions = None,
    corpus: Corpus = None,
    limit: Limit = 4,
    schemes: Annotated[
        str,
        typer.Option(
            "--schemes", metavar="all|NAME,...", help="Of droidspeak, droidspeak_scattered and relay_caching."
        ),
    ] = "all",
    share: Annotated[float, typer.Option("--share", help="The part of the layers that is computed again.")] = 0.3,
    ridge: Annotated[bool, typer.Option("--ridge", help="Fit the maps of scheme ridge instead.")] = False,
    dtype: Annotated[
        str, typer.Option("--dtype", help="float32, or another dtype of the model; rounding counts as harm.")
    ] = "float32",
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="Where layers.json or ridge.safetensors goes.")
    ] = Path("runs/profile"),
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
    """Measure which layers must be computed again when an agent reads what others computed, and write them to a file.

    Sample trajectories are forced through the model, with all layers repaired but one (droidspeak_scattered), or one
    group of neighbours repaired (droidspeak, relay_caching); what counts is the KL of the next token against
    non_shared. The file is an option of the schemes: droidspeak:layers=FILE. It holds for this backbone and these
    adapters only.
    """
    named = SampleFiles(trajectories, questions, corpus)
    named.check()
    flags = {"team": team, "seed": seed, "offline": offline, "device": device, "threads": threads}
    resolved = resolve_settings(flags, sets)
    settings, crew = resolved.settings, resolved.load_team(adapters=adapters)
    folders = crew.adapters()

    from agentrt.evaluate.profile.job import check_share, facts, probed_schemes, run_profile

    check_share(share)
    probed_schemes(schemes)  # what is misspelled is refused before a model is loaded
    from agentrt.cli.backbone import load_backbone
    from agentrt.evaluate.forced import check_samples
    from agentrt.evaluate.ridge import fit_ridge, write_ridge
    from agentrt.model.progress import progress_bar
    from agentrt.schemes.layer_file import write_layer_file

    output = Output(as_json=as_json, quiet=quiet)
    with progress_bar(quiet=quiet) as report:
        backbone = load_backbone(crew, settings, dtype)
        samples = read_samples(crew, backbone, named, limit=limit, seed=settings.seed, report=report, say=output.say)
        loaded = backbone.load_adapters(folders)
        out.mkdir(parents=True, exist_ok=True)
        if ridge:
            check_samples(samples, loaded, backbone)
            maps = out / "ridge.safetensors"
            fit = fit_ridge(backbone, loaded, [sample.token_ids for sample in samples])
            write_ridge(maps, fit, backbone, loaded)
        else:
            profiles = run_profile(backbone, loaded, samples, schemes=schemes, share=share, report=report)
    if ridge:
        gains = {name: [round(gain, 6) for gain in each.gains.tolist()] for name, each in fit.maps.items()}
        output.record({"event": "ridge_fitted", "file": str(maps), "tokens": fit.num_tokens, "gains": gains})
        output.result(f"fitted on {fit.num_tokens:,} tokens: --scheme ridge:maps={maps}")
        return
    file = out / "layers.json"
    layers, found = {each.scheme: each.layers for each in profiles}, facts(profiles, samples, share)
    write_layer_file(file, layers, backbone_hash=backbone.content_hash, adapter_hashes=loaded.hashes, facts=found)
    output.record({"event": "profile", "file": str(file), "layers": layers, **found})
    for each in profiles:
        low, high = min(each.values.values()), max(each.values.values())
        output.result(f"{each.scheme}: layers {each.layers} (KL of {len(each.values)} probes: {low:.4f} to {high:.4f})")
    output.result(f"use it: --scheme {profiles[0].scheme}:layers={file}")
