"""Sample trajectories for commands that measure adapters: recorded ones, or gold ones derived from questions."""

import tempfile
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

if TYPE_CHECKING:
    from agentrt.config.team import Team
    from agentrt.evaluate.forced import Sample
    from agentrt.model.backbone import Backbone

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
    typer.Option(
        "--questions",
        help="Questions to derive from. Default: the team's files, else the mini benchmark's; all splits.",
    ),
]
Corpus = Annotated[Path | None, typer.Option("--corpus", help="The articles of --questions.")]
Limit = Annotated[int, typer.Option("--limit", min=1, help="Use the first N trajectories.")]

AdapterFolders = Annotated[
    Path | None,
    typer.Option("--adapters", metavar="DIR", help="Adapters in DIR/<role>, as `train` leaves them; not the team's."),
]


class SampleFiles(NamedTuple):
    """Where samples come from; all None: the questions that the team is trained on."""

    trajectories: Path | None
    questions: Path | None
    corpus: Path | None

    def check(self) -> None:
        """Raise UsageError for files that are not there or do not go together, before a model is loaded."""
        from agentrt.errors import UsageError

        if self.trajectories is not None and (self.questions or self.corpus):
            raise UsageError("--trajectories are whole already: leave out --questions and --corpus")
        if (self.questions is None) != (self.corpus is None):
            raise UsageError("--questions and --corpus go together: give both, or neither for the team's own")
        for path in self:
            if path is not None and not path.is_file():
                raise UsageError(f"{path} is not a file")


def read_samples(
    team: "Team",
    backbone: "Backbone",
    files: SampleFiles,
    *,
    limit: int,
    seed: int,
    report: Callable[[str, float, float], None],
    say: Callable[[str], None],
) -> "list[Sample]":
    """At most `limit` samples, the same for the same arguments; `say` is told what was left out and why.

    Raises UsageError and DataError as their readers do.
    """
    from agentrt.evaluate.forced import Call, Sample
    from agentrt.training.examples import preamble_of, read_recorded, turns_of
    from agentrt.training.job import Source, derive_data, load_data
    from agentrt.training.team_files import files_of

    tokenizer = backbone.tokenizer
    assert tokenizer is not None, "loaded by name"
    if files.trajectories is not None:
        recorded = list(islice(read_recorded(files.trajectories), limit))
    else:
        if files.questions is not None and files.corpus is not None:
            sources = [Source(files.questions, files.corpus)]
        else:
            sources = files_of(team)
        with tempfile.TemporaryDirectory() as folder:
            facts = derive_data(
                team, tokenizer, sources, Path(folder), split=None, seed=seed, limit=limit, report=report
            )
            for reason, count in facts["skipped"].items():
                say(f"left out {count} samples: {reason}")
            recorded = load_data(Path(folder))[0][:limit]
    return [Sample(each.id, preamble_of(each), tuple(Call(*turn) for turn in turns_of(each))) for each in recorded]
