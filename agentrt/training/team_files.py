"""Which question files a team is trained on where nobody names others, and under what licence files are."""

from collections.abc import Iterable
from pathlib import Path

from agentrt.builtin import agents_dir, configs_dir
from agentrt.config.team import Team
from agentrt.training.job import Source, ToldFile


def files_of(team: Team) -> list[Source]:
    """The files that the team names with its corpus, else those of the mini benchmark."""
    if team.corpus_file is not None and team.training_files:
        return [Source(questions, team.corpus_file) for questions in team.training_files]
    mini = configs_dir() / "mini"
    return [Source(mini / "questions.jsonl", mini / "articles.jsonl")]


def licence_of(files: Iterable[Source | ToldFile]) -> str:
    """That of data which ships with the package; of other data only its owner knows."""
    paths = [part.resolve() for file in files for part in file if isinstance(part, Path)]
    shipped = all(path.is_relative_to(agents_dir()) or path.is_relative_to(configs_dir()) for path in paths)
    return "Apache-2.0" if paths and shipped else "not stated"
