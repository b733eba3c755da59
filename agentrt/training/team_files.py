"""Which question files a team is trained on where nobody names others."""

from agentrt.builtin import configs_dir
from agentrt.config.team import Team
from agentrt.training.job import Source


def files_of(team: Team) -> list[Source]:
    """The files that the team names with its corpus, else those of the mini benchmark."""
    if team.corpus_file is not None and team.training_files:
        return [Source(questions, team.corpus_file) for questions in team.training_files]
    mini = configs_dir() / "mini"
    return [Source(mini / "questions.jsonl", mini / "articles.jsonl")]
