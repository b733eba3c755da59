"""The runtime that a command's settings name, for every command that runs episodes."""

from pathlib import Path
from typing import NamedTuple

from agentrt.builtin import configs_dir
from agentrt.cli.backbone import use_threads
from agentrt.config.settings import Settings
from agentrt.config.team import Team
from agentrt.questions.datasets import BENCHMARKS
from agentrt.runtime.episode import Runtime


class Cassettes(NamedTuple):
    """Folders to record tool calls in, or to play them from."""

    record: Path | None = None
    cassette: Path | None = None


def open_runtime(
    team: Team,
    settings: Settings,
    corpus: Path | None,
    cassettes: Cassettes,
    *,
    out: Path | None,
) -> Runtime:
    """`corpus`: what tools read where neither settings nor team name a file. `out`: where run folders go; None writes
    none. Sets the process's threads, if the settings name a number."""
    use_threads(settings)
    return Runtime(
        team,
        corpus=settings.corpus or team.corpus_file or corpus,
        record=cassettes.record,
        cassette=cassettes.cassette,
        seed=settings.seed,
        out=out,
        device=settings.device,
        offline=settings.offline,
        backend=settings.backend,
        cuda_graphs=settings.cuda_graphs,
        kv_budget=settings.kv_budget,
    )


def shipped_corpus(benchmark: str | None, data: Path | None) -> Path | None:
    """The mini benchmark's articles, for its own questions and for a question of the user's; None for any other."""
    shipped = benchmark is None or (data is None and bool(BENCHMARKS[benchmark].shipped))
    return configs_dir() / "mini" / "articles.jsonl" if shipped else None
