"""`agentrt run`: one episode, shown as it happens."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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
from agentrt.errors import UsageError

if TYPE_CHECKING:
    from agentrt.questions.datasets import Question


def run(
    question: Annotated[str | None, typer.Argument(help="What to ask; or take one from a --benchmark.")] = None,
    benchmark: Annotated[
        str | None, typer.Option("--benchmark", help="mini, mini-science, hotpotqa or scienceqa.")
    ] = None,
    data: BenchmarkData = None,
    split: Split = "auto",
    index: Annotated[int, typer.Option("--index", min=0, help="Which question, counted from 0.")] = 0,
    corpus: ToolCorpus = None,
    team: TeamName = None,
    adapters: AdapterFolders = None,
    scheme: SchemeName = None,
    device: Device = None,
    threads: Threads = None,
    kv_budget: KVBudget = None,
    stream: Annotated[
        bool | None, typer.Option("--stream/--no-stream", help="Token by token; default: unless --json or --quiet.")
    ] = None,
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
    """Answer one question: stream every turn, then the answer and what each role reused.

    Exit code 0 with an answer, 3 where a limit came first, 4 where tools lack a key or credits or failed too often.
    """
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
    loaded = resolved.load_team(adapters=adapters)
    found = _question(question, benchmark, data, split, index, captions=not loaded.shows_images)

    from agentrt.cli.episode import Asked, play
    from agentrt.cli.served import require_served
    from agentrt.cli.team_runtime import Cassettes, open_runtime, shipped_corpus

    require_served(loaded)

    out = Output(as_json=as_json, quiet=quiet)
    articles, cassettes = shipped_corpus(benchmark, data), Cassettes(record, cassette)
    with open_runtime(loaded, settings, articles, cassettes, out=Path(settings.out)) as runtime:
        out.say(f"loading {loaded.base.model} with {len(loaded.adapters())} adapters", style="dim")
        tokens = not (as_json or quiet) if stream is None else stream
        asked = Asked.of(found)
        events = runtime.stream(asked.text, tokens=tokens, score=asked.scorer, note=asked.note)
        code = play(loaded, asked, events, out, folder=Path(settings.out))
    if code:
        raise typer.Exit(code)


def _question(
    text: str | None, benchmark: str | None, data: Path | None, split: str, index: int, *, captions: bool
) -> "str | Question":
    if (text is None) == (benchmark is None):
        raise UsageError("give either a question or --benchmark NAME, e.g. agentrt run --benchmark mini --index 0")
    if text is not None:
        return text
    from agentrt.questions.datasets import load_questions

    questions = load_questions(str(benchmark), data, None if split == "all" else split, captions=captions)
    if index >= len(questions):
        raise UsageError(f"--index {index}: {benchmark} has {len(questions)} such questions, 0 to {len(questions) - 1}")
    return questions[index]
