"""`agentrt serve-bench`: how schemes hold up when trajectories keep arriving, in this process."""

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
    from agentrt.evaluate.serving.job import Found


def serve_bench(
    trace: Annotated[str, typer.Option("--trace", metavar="NAME|FILE", help="What each trajectory does.")] = "react",
    context: Annotated[int, typer.Option("--context", metavar="C", help="Tokens of each observation.")] = 256,
    schemes: Annotated[
        str, typer.Option("--schemes", metavar="core|all|NAME,...", help="What to compare, in this order.")
    ] = "core",
    arrivals: Annotated[
        str,
        typer.Option("--arrivals", metavar="trajectories|calls", help="Poisson; or call k at k/rate, as in the paper."),
    ] = "trajectories",
    rates: Annotated[
        str | None, typer.Option("--rates", metavar="R,...", help="Arrivals a second. Default: by --loads.")
    ] = None,
    loads: Annotated[
        str, typer.Option("--loads", metavar="L,...", help="Rates as shares of the best scheme's saturation.")
    ] = "0.25,0.5,0.75,0.9,1.1",
    trajectories: Annotated[
        int, typer.Option("--trajectories", metavar="N", help="How many arrive at each rate.")
    ] = 16,
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
    """Offer trajectories at rising rates: time to first token with queueing (p50, p90, p99) and throughput.

    Each scheme's saturation is measured first, by a burst of all trajectories. Arrivals never wait for what was
    served. A scheme that does not equal its definition is left out, and the exit code is 1.
    """
    from agentrt.cli.backbone import load_backbone
    from agentrt.config.trace import TraceConfig
    from agentrt.evaluate.figures import require_matplotlib
    from agentrt.evaluate.replay.adapters import RandomAdapters
    from agentrt.evaluate.replay.plan import ReplayPlan
    from agentrt.evaluate.serving.plan import ServePlan

    if plot is not None:
        require_matplotlib()
    flags = {"team": team, "seed": seed, "offline": offline, "device": device, "threads": threads}
    resolved = resolve_settings(flags, sets)
    settings, config = resolved.settings, TraceConfig.load(trace)
    own = random_adapters is None and not config.crews and not config.ranks
    crew = resolved.load_team(need_adapters=own)
    replay = ReplayPlan(
        config,
        Path(trace).stem,
        schemes=schemes,
        contexts=(context,),
        adapters=crew.adapters() if own else None,
        adapter_source=f"team {crew.name}",
        random=RandomAdapters.parse(random_adapters or ""),
        tool_wait_s=tool_wait,
        ride_rows=ride_rows,
        seed=settings.seed,
    )
    plan = ServePlan(
        replay,
        context,
        arrivals=arrivals,  # type: ignore[arg-type]  # checked by the plan
        rates=_numbers("--rates", rates or ""),
        loads=_numbers("--loads", loads),
        trajectories=trajectories,
    )
    plan.variant  # noqa: B018 - what is misspelled is refused before a model is loaded
    from agentrt.evaluate.replay.entrants import LeftOut
    from agentrt.evaluate.serving.job import Failed, run_serve_bench
    from agentrt.evaluate.serving.plots import draw
    from agentrt.evaluate.serving.result import to_record
    from agentrt.model.progress import progress_bar

    out = Output(as_json=as_json, quiet=quiet)
    backbone = load_backbone(crew, settings)
    points, failed = [], []
    with progress_bar(quiet=quiet) as bar:
        for found in run_serve_bench(backbone, plan, bar):
            if isinstance(found, LeftOut):
                out.record(found.to_record())
                out.say(f"left out {found.label}: {found.reason}")
            elif isinstance(found, Failed):
                failed.append(found)
                out.result(f"{found.label} is not measured: {found.check.reason}")
            else:
                for each in found:
                    out.record(to_record(each.point, each.trace, each.declared))
                    points.append(each.point)
                _show(out, found)
    if plot is not None and points:
        for file in draw(points, plot):
            out.say(f"drew {file}")
    if failed:
        raise EngineError(f"{failed[0].label} failed its equivalence check: {failed[0].check.reason}")


def _numbers(option: str, text: str) -> tuple[float, ...]:
    try:
        return tuple(float(word) for word in text.split(",") if word.strip())
    except ValueError:
        raise UsageError(f"{option} {text}: numbers, separated by commas, e.g. {option} 0.5,1") from None


_COLUMNS = ("scheme", "load", "TTFT p50", "p90", "p99", "latency p90", "tok/s", "done/s", "peak MiB")


def _show(out: Output, found: "list[Found]") -> None:
    first = found[0].point
    offered = "all at once: saturation" if first.rate_per_s is None else f"{first.rate_per_s:.4g} a second"
    trace = found[0].trace
    out.result(f"\n{trace.name}, C = {trace.context:,}, {first.trajectories} trajectories; {first.arrivals} {offered}")
    rows = [
        (
            point.scheme,
            "-" if point.load is None else f"{point.load:.2f}",
            *(f"{value:.3f}" for value in point.ttft_s),
            f"{point.latency_s.p90:.3f}",
            f"{point.throughput_tok_s:.1f}",
            f"{point.completed_per_s:.4g}",
            f"{point.kv_bytes_peak / 2**20:.2f}",
        )
        for point in (each.point for each in found)
    ]
    out.table(_COLUMNS, rows, right=_COLUMNS[1:])
