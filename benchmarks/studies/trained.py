"""Teams trained for a study by `agentrt train`, each once."""

import json
from typing import Any, TypeVar

from pydantic import Field

from agentrt.config.strict import PositiveFloat, PositiveInt, Text
from benchmarks.studies.harness import Study, StudyConfig, command


class TrainedConfig(StudyConfig):
    """`passes`, `lr` and `jobs` as `agentrt train` takes them. Files are relative to --data; without them the mini
    benchmark's are used. `schemes` are held against non_shared on the gold trajectories of the first `trajectories`
    questions of `eval_questions`; those that have none are left out."""

    roles: tuple[Text, ...] = ("plan", "action", "reflect")
    train_questions: Text | None = None
    eval_questions: Text | None = None
    corpus: Text | None = None
    train_limit: PositiveInt | None = None
    trajectories: PositiveInt
    passes: PositiveFloat = 2.0
    lr: PositiveFloat = 1.2e-3
    jobs: PositiveInt | None = None
    schemes: tuple[Text, ...] = Field(min_length=1)


Config = TypeVar("Config", bound=TrainedConfig)


def train_team(study: Study[Config], place: str, *, rank: int = 8, lr: float | None = None) -> list[str]:
    """Arguments that give the team adapters trained in `work / place`; trains those that are not there yet."""
    config, out = study.config, study.work / place
    files = _files(study, config.train_questions)
    limit = ["--limit", str(config.train_limit)] if config.train_limit else []
    shape = ["--rank", str(rank), "--lr", str(config.lr if lr is None else lr), "--passes", str(config.passes)]
    jobs = ["--jobs", str(config.jobs)] if config.jobs else []
    roles = [word for role in config.roles for word in ("--role", role)]
    made = [*files, *limit, *roles, *shape, *jobs, "--out", str(out), "--seed", str(config.seed)]
    command("train", *study.team, "--derive", "--resume", *made, "-q")
    folders = {role: (out / "adapters" / role).resolve() for role in config.roles}
    return [word for role, folder in folders.items() for word in ("--set", f"roles.{role}.adapter={folder}")]


def training(study: Study[Config], place: str, *, rank: int = 8, lr: float | None = None) -> dict[str, Any]:
    """By role, what training came to in `work / place`: `result` of the adapters' cards."""
    train_team(study, place, rank=rank, lr=lr)
    cards = {role: study.work / place / "adapters" / role / "card.json" for role in study.config.roles}
    return {role: json.loads(card.read_text(encoding="utf-8"))["result"] for role, card in cards.items()}


def drift(study: Study[Config], place: str, *, rank: int = 8, lr: float | None = None) -> dict[str, Any]:
    """Every scheme's divergence on the team of `work / place`."""
    adapters = train_team(study, place, rank=rank, lr=lr)
    return study.drift(place, study.config.schemes, [*adapters, *drift_args(study)])


def drift_args(study: Study[Config]) -> list[str]:
    """The trajectories that schemes are measured on."""
    return [*_files(study, study.config.eval_questions), "--limit", str(study.config.trajectories)]


def _files(study: Study[Config], questions: str | None) -> list[str]:
    if questions is None:
        return []
    return [
        "--questions",
        str(study.path(questions)),
        "--corpus",
        str(study.path(study.config.corpus or "corpus.jsonl")),
    ]
