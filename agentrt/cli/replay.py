"""`agentrt replay`: what the sharing schemes cost, on traces with nothing random in them but the token ids."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agentrt.cli.options import (
    Device,
    Json,
    Offline,
    Quiet,
    RandomSpec,
    RideRows,
    Seed,
    Sets,
    TeamName,
    Threads,
    ToolWait,
    Verbose,
    resolve_settings,
)
from agentrt.cli.output import Output
from agentrt.errors import EngineError, UsageError

if TYPE_CHECKING:
    from agentrt.evaluate.replay.job import Finding


def replay(
    trace: Annotated[
        str, typer.Option("--trace", metavar="NAME|FILE", help="react, agents, rank, qkvo, or a file.")
    ] = "react",
    context: Annotated[
        str | None, typer.Option("--context", metavar="C,...", help="Tokens of each observation. Default: the trace's.")
    ] = None,
    schemes: Annotated[
        str, typer.Option("--schemes", metavar="core|all|NAME,...", help="What to compare, in this order.")
    ] = "core",
    repeats: Annotated[int, typer.Option("--repeats", help="Timed runs of each, after a short warm-up.")] = 3,
    tool_wait: ToolWait = 0.0,
    random_adapters: RandomSpec = None,
    ride_rows: RideRows = None,
    plot: Annotated[Path | None, typer.Option("--plot", metavar="DIR", help="Draw figures into this folder.")] = None,
    team: TeamName = None,
    device: Device = None,
    threads: Threads = None,
    seed: Seed = None,
    offline: Offline = None,
    sets: Sets = [],  # noqa: B006 - typer reads the default and copies it
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Replay a controlled trace under each scheme: first-token time, throughput, memory, and rows, which are exact.

    Ratios are given only for schemes that pass an equivalence check against their definition and whose rows and
    bytes equal the formulas; where one does not, exit code 1.
    """
    from agentrt.cli.backbone import load_backbone
    from agentrt.config.trace import TraceConfig
    from agentrt.evaluate.figures import require_matplotlib
    from agentrt.evaluate.replay.adapters import RandomAdapters
    from agentrt.evaluate.replay.plan import ReplayPlan, variants
    from agentrt.evaluate.replay.plots import draw

    if plot is not None:
        require_matplotlib()
    flags = {"team": team, "seed": seed, "offline": offline, "device": device, "threads": threads}
    resolved = resolve_settings(flags, sets)
    settings, config = resolved.settings, TraceConfig.load(trace)
    own = random_adapters is None and not config.crews and not config.ranks
    crew = resolved.load_team(need_adapters=own)
    plan = ReplayPlan(
        config,
        Path(trace).stem,
        schemes=schemes,
        contexts=_contexts(context),
        adapters=crew.adapters() if own else None,
        adapter_source=f"team {crew.name}",
        random=RandomAdapters.parse(random_adapters or ""),
        repeats=repeats,
        tool_wait_s=tool_wait,
        ride_rows=ride_rows,
        seed=settings.seed,
    )
    variants(plan)  # what is misspelled is refused before a model is loaded
    from agentrt.evaluate.replay.entrants import LeftOut
    from agentrt.evaluate.replay.job import run_replay
    from agentrt.evaluate.replay.result import to_record
    from agentrt.model.progress import progress_bar

    out = Output(as_json=as_json, quiet=quiet)
    findings: list[Finding] = []
    backbone = load_backbone(crew, settings)
    with progress_bar(quiet=quiet) as bar:
        for found in run_replay(backbone, plan, bar):
            if isinstance(found, LeftOut):
                out.record(found.to_record())
                out.say(f"left out {found.label}: {found.reason}")
                continue
            for finding in found:
                growth = finding.growth and finding.growth._asdict()
                out.record(to_record(finding.outcome, finding.declared, finding.group, growth))
            _show(out, found)
            _show_growth(out, found)
            findings += found
    if plot is not None and any(not finding.outcome.refused for finding in findings):
        for file in draw([(finding.group, finding.outcome) for finding in findings], plot):
            out.say(f"drew {file}")
    if wrong := [finding.outcome for finding in findings if finding.outcome.wrong]:
        named = "; ".join(f"{each.measured.label} at C = {each.measured.trace.context}" for each in wrong)
        raise EngineError(f"no ratios for {named}: {wrong[0].refused}")


def _contexts(text: str | None) -> tuple[int, ...]:
    words = [] if text is None else [word.strip() for word in text.split(",")]
    for word in words:
        if not word.isdigit() or int(word) < 1:
            raise UsageError(f"--context {text}: {word!r} is no number of tokens; write e.g. --context 256,1024")
    return tuple(map(int, words))


_COLUMNS = (
    "scheme",
    "TTFT s",
    "/non",
    "/full",
    "total s",
    "tok/s",
    "/non",
    "/full",
    "peak MiB",
    "prefill rows",
    "neutral rows",
    "decode rows",
    "repaired layer rows",
)


def _show(out: Output, found: "list[Finding]") -> None:
    """A table for people; a ratio that may not be given is a dash, and the reason stands below."""
    trace = found[0].outcome.measured.trace
    group = f", {found[0].group}" if found[0].group else ""
    flag = " (beyond the backbone's positions: timing only)" if found[0].declared["beyond_positions"] else ""
    out.result(f"\n{trace.name}, C = {trace.context:,}{group}: {trace.num_tokens:,} tokens{flag}", style="bold")
    rows = []
    for outcome in (finding.outcome for finding in found):
        run, ratios = outcome.measured.middle, outcome.ratios or (None,) * 4
        ttft_non, ttft_full, speed_non, speed_full = ("-" if ratio is None else f"{ratio:.2f}" for ratio in ratios)
        rows.append(
            (
                outcome.measured.label,
                f"{run.ttft_s:.2f}",
                ttft_non,
                ttft_full,
                f"{run.total_s:.2f}",
                f"{outcome.measured.throughput_tok_s:.1f}",
                speed_non,
                speed_full,
                f"{run.kv_bytes_peak / 2**20:.2f}",
                f"{run.prefill_rows:,}",
                f"{run.neutral_rows:,}",
                f"{run.decode_rows:,}",
                f"{run.repaired_layer_rows:,}",
            )
        )
    out.table(_COLUMNS, rows, right=_COLUMNS[1:])
    for outcome in (finding.outcome for finding in found):
        if outcome.refused:
            out.result(f"no ratios for {outcome.measured.label}: {outcome.refused}")


_GROWTH = ("scheme", "TTFT", "total", "prefill rows", "neutral rows", "peak bytes")


def _show_growth(out: Output, found: "list[Finding]") -> None:
    """How the figures of this crew or rank compare with the first one's."""
    grown = [(finding.outcome.measured.label, finding.growth) for finding in found if finding.growth is not None]
    if not grown:
        return
    trace = found[0].outcome.measured.trace
    out.result(f"\n{trace.name}, C = {trace.context:,}: {found[0].group} over {grown[0][1].over}", style="bold")
    rows = [(label, *("-" if each is None else f"{each:.2f}" for each in growth[1:])) for label, growth in grown]
    out.table(_GROWTH, rows, right=_GROWTH[1:])
