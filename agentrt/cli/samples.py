"""Sample trajectories for commands that measure adapters: recorded ones, or gold ones derived from questions."""

import tempfile
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from agentrt.config.team import Team
    from agentrt.evaluate.forced import Sample
    from agentrt.model.tokenizer import Tokenizer

Trajectories = Annotated[
    Path | None,
    typer.Option(
        "--trajectories",
        metavar="FILE",
        help="trajectories.jsonl of `train --derive`. Default: derived from questions.",
    ),
]
Questions = Annotated[
    Path | None,
    typer.Option("--questions", help="Questions with supporting facts to derive from. Default: the mini benchmark."),
]
Corpus = Annotated[Path | None, typer.Option("--corpus", help="The articles of --questions.")]
Limit = Annotated[int, typer.Option("--limit", min=1, help="Use the first N trajectories.")]


def read_samples(
    team: "Team",
    tokenizer: "Tokenizer",
    *,
    trajectories: Path | None,
    questions: Path | None,
    corpus: Path | None,
    limit: int,
    seed: int,
    report: Callable[[str, float, float], None],
) -> "list[Sample]":
    """At most `limit` samples, the same for the same arguments. Raises UsageError and DataError as their readers do."""
    from agentrt.builtin import configs_dir
    from agentrt.evaluate.forced import Call, Sample
    from agentrt.training.examples import preamble_of, read_recorded, turns_of
    from agentrt.training.job import Source, derive_data, load_data

    if trajectories is not None:
        recorded = list(islice(read_recorded(trajectories), limit))
    else:
        mini = configs_dir() / "mini"
        source = Source(questions or mini / "questions.jsonl", corpus or mini / "articles.jsonl")
        with tempfile.TemporaryDirectory() as folder:
            derive_data(team, tokenizer, [source], Path(folder), split=None, seed=seed, limit=limit, report=report)
            recorded = load_data(Path(folder))[0][:limit]
    return [Sample(each.id, preamble_of(each), tuple(Call(*turn) for turn in turns_of(each))) for each in recorded]


def check_files(trajectories: Path | None, questions: Path | None, corpus: Path | None) -> None:
    """Raise UsageError for files that are not there or do not go together, before a model is loaded."""
    from agentrt.errors import UsageError

    if trajectories is not None and (questions or corpus):
        raise UsageError("--trajectories are whole already: leave out --questions and --corpus")
    if (questions is None) != (corpus is None):
        raise UsageError("--questions and --corpus go together: give both, or neither for the mini benchmark")
    for path in (trajectories, questions, corpus):
        if path is not None and not path.is_file():
            raise UsageError(f"{path} is not a file")
