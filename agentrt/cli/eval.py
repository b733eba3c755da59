"""`agentrt eval`: a team on a benchmark, many episodes at once."""

from contextlib import closing
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from agentrt.cli.options import (
    BenchmarkData,
    CassetteDir,
    Device,
    Json,
    KVBudget,
    Offline,
    Out,
    Quiet,
    Record,
    SchemeName,
    Seed,
    Sets,
    Split,
    TeamName,
    Threads,
    ToolCorpus,
    Verbose,
    resolve_settings,
)
from agentrt.cli.output import Output
from agentrt.cli.samples import AdapterFolders

ABOVE_THRESHOLD: Final = 6


def evaluate(
    benchmark: Annotated[str, typer.Option("--benchmark", help="mini, mini-science, hotpotqa or scienceqa.")] = "mini",
    data: BenchmarkData = None,
    split: Split = "auto",
    limit: Annotated[int | None, typer.Option("--limit", metavar="N", help="Only the first N questions.")] = None,
    repeats: Annotated[int, typer.Option("--repeats", help="Episodes of each question, each with its own seed.")] = 1,
    sampling: Annotated[
        str | None,
        typer.Option("--sampling", metavar="PRESET", help="How all roles draw: greedy, autoact or lragent (papers)."),
    ] = None,
    concurrency: Annotated[
        int,
        typer.Option(
            "--concurrency", help="Episodes at once on one engine. Changes no result in fp32, time limits aside."
        ),
    ] = 4,
    max_failed: Annotated[
        float, typer.Option("--max-failed", metavar="SHARE", help="Of episodes that may break before exit code 6.")
    ] = 0.0,
    resume: Annotated[
        str | None, typer.Option("--resume", metavar="ID", help="Go on with an evaluation, under the same options.")
    ] = None,
    corpus: ToolCorpus = None,
    team: TeamName = None,
    adapters: AdapterFolders = None,
    scheme: SchemeName = None,
    device: Device = None,
    threads: Threads = None,
    kv_budget: KVBudget = None,
    record: Record = None,
    cassette: CassetteDir = None,
    seed: Seed = None,
    out_dir: Out = None,
    offline: Offline = None,
    sets: Sets = [],  # noqa: B006 - typer reads the default and copies it
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Score a team: EM and F1 by level, or accuracy by grade band for multiple choice.

    Writes eval.json, episodes.jsonl (a row an episode, enough to score again) and summary.json under OUT/ID. Not
    finished is wrong. Exit code 4 where tools lacked a key or credits; 6 where more than --max-failed of the episodes
    broke; 130 when interrupted.
    """
    from agentrt.cli.episode import TOOLS_FAILED
    from agentrt.cli.served import require_served
    from agentrt.cli.team_runtime import Cassettes, open_runtime, shipped_corpus
    from agentrt.evaluate.evaluation.folder import EvalFolder
    from agentrt.evaluate.evaluation.job import run_episodes
    from agentrt.evaluate.evaluation.plan import EvalPlan, pick
    from agentrt.evaluate.evaluation.row import EpisodeRow
    from agentrt.evaluate.evaluation.summary import declare_engine, summarise
    from agentrt.model.progress import progress_bar
    from agentrt.questions.datasets import load_questions
    from agentrt.runtime.episode import new_run_id
    from agentrt_tools import ToolHealth

    flags = {
        "team": team,
        "scheme": scheme,
        "seed": seed,
        "out": out_dir,
        "offline": offline,
        "device": device,
        "threads": threads,
        "kv_budget": kv_budget,
        "corpus": str(corpus) if corpus else None,
    }
    resolved = resolve_settings(flags, sets)
    settings = resolved.settings
    loaded = resolved.load_team(adapters=adapters, sampling=sampling)
    wanted = None if split == "all" else split
    questions = pick(load_questions(benchmark, data, wanted, captions=not loaded.shows_images), limit)
    plan = EvalPlan(benchmark, questions, repeats, concurrency, settings.seed, max_failed)
    require_served(loaded)
    out, cassettes = Output(as_json=as_json, quiet=quiet), Cassettes(record, cassette)
    with open_runtime(loaded, settings, shipped_corpus(benchmark, data), cassettes, out=None) as runtime:
        out.say(f"loading {loaded.base.model} with {len(loaded.adapters())} adapters", style="dim")
        declared = declare_engine(runtime.engine)  # a model that cannot be loaded leaves no folder behind
        identity = plan.identity(loaded, str(runtime.scheme), declared, runtime.resources)
        eval_id = resume or new_run_id()
        path = Path(settings.out) / eval_id
        made_by = plan.made_by(declared)
        opened = EvalFolder.resume(path, identity) if resume else EvalFolder.create(path, identity, made_by)
        with closing(opened) as folder:
            out.say(f"evaluation {eval_id}: {len(plan.episodes())} episodes, {len(folder.rows)} done", style="dim")

            def emit(row: EpisodeRow) -> None:
                folder.add(row)
                out.raw(row.model_dump_json())
                if verbose:
                    verdict = "right" if row.correct else "wrong"
                    out.say(f"{row.id}: {verdict}, {row.status}, {row.prediction!r} for {row.letter or row.answer!r}")

            try:
                with progress_bar(quiet=quiet) as bar:
                    done = {row.key for row in folder.rows}
                    run_episodes(runtime, plan, emit, done=done, report=bar)
            except KeyboardInterrupt as stop:
                done_now = f"{len(folder.rows)} episodes are in {path}"
                raise type(stop)(f"{done_now}; the same command with --resume {eval_id} goes on") from None
            summary = {
                **summarise(benchmark, str(runtime.scheme), folder.rows),
                "run_id": eval_id,
                "seed": settings.seed,
            }
            folder.finish({**summary, "identity": identity, "made_by": made_by, "declared": declared})
    out.record(summary)
    _show(out, summary, concurrency)
    if ToolHealth.from_json(summary["tool_health"]).locked_out:
        raise typer.Exit(TOOLS_FAILED)
    if summary["failed"] > max_failed * summary["n"]:
        raise typer.Exit(ABOVE_THRESHOLD)


def _show(out: Output, summary: dict[str, Any], concurrency: int) -> None:
    metrics = list(summary["metrics"])
    rows = [
        (name or "-", found["n"], *(f"{found[key]:.3f}" for key in metrics))
        for name, found in summary["by_group"].items()
    ]
    total = []
    for key in metrics:
        interval = summary["ci95"][key]
        spread = f" [{interval[0]:.3f}, {interval[1]:.3f}]" if interval else ""
        total.append(f"{summary['metrics'][key]:.3f}{spread}")
    deviations = summary["std_over_repeats"]
    columns = ("group", "n", *metrics)
    out.table(columns, [*rows, ("all", summary["n"], *total)], right=columns[1:])
    if deviations:
        spelled = ", ".join(f"{name} {value:.4f}" for name, value in deviations.items())
        out.result(f"standard deviation over repeats: {spelled}")
    guess = dict(summary["baseline"])
    answer = guess.pop("letter", None) or repr(guess.pop("answer"))
    out.result(f"always answering {answer} would score {', '.join(f'{name} {v:.3f}' for name, v in guess.items())}")
    if summary["status"].get("limit:time") and concurrency > 1:
        out.result(
            "episodes side by side wait for each other, and some ran into limits.time_s: try --concurrency 1, or "
            "--set limits.time_s=3600"
        )
    ends = ", ".join(f"{count} {status}" for status, count in summary["status"].items())
    hit = f"{summary['limit_share']:.1%} hit a limit"
    out.result(f"{summary['n']} episodes of {summary['questions']} questions ended as: {ends}; {hit}")
    if signs := ", ".join(f"{name} {area:.2f}" for name, area in summary["told_apart"].items() if area is not None):
        out.result(f"right answers told from wrong ones (AUC, 0.50 is chance): {signs}")
    if cost := summary["per_episode"]:
        length = cost["trajectory_tokens"]
        out.result(
            f"per episode: TTFT {cost['ttft_s']:.2f} s, model {cost['model_latency_s']:.2f} s, end to end "
            f"{cost['end_to_end_s']:.2f} s, {cost['steps']:.1f} steps, {length['mean']:.0f} tokens "
            f"(at most {length['max']})"
        )
    health = summary["tool_health"]
    failures = ", ".join(f"{count} {kind}" for kind, count in health["failures"].items()) or "none"
    out.result(f"tools: {health['calls']} calls, {health['misses']} misses, failures: {failures}")
