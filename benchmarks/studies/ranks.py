"""Study (c): adapters of rank 4, 8, 16, 32: what they learn, each scheme's divergence, some schemes' accuracy.

`python -m benchmarks.studies.ranks --data DIR`
"""

from collections.abc import Sequence
from typing import Any

from pydantic import Field

from agentrt.config.strict import PositiveInt, Text
from benchmarks.studies.harness import Study, main, slug
from benchmarks.studies.trained import TrainedConfig, drift, train_team, training


class RanksConfig(TrainedConfig):
    """The first `limit` of `eval_questions` are answered under each of the `evaluated` schemes."""

    ranks: tuple[PositiveInt, ...] = Field(min_length=1)
    evaluated: tuple[Text, ...] = Field(min_length=1)
    benchmark: Text
    limit: PositiveInt
    concurrency: PositiveInt = 4


def run(study: Study[RanksConfig]) -> None:
    config = study.config
    plan = ["--benchmark", config.benchmark, "--limit", str(config.limit), "--concurrency", str(config.concurrency)]
    if config.eval_questions is not None:
        plan += ["--data", str(study.path(config.eval_questions)), "--corpus", str(study.path(config.corpus or ""))]

    def answered(rank: int, scheme: str) -> dict[str, Any]:
        adapters = train_team(study, f"r{rank}", rank=rank)
        return study.evaluate(f"r{rank}/eval/{slug(scheme)}", [*adapters, *plan, "--scheme", scheme])

    for rank in config.ranks:
        study.measure(f"r{rank} drift", drift, study, f"r{rank}", rank=rank)
        study.measure(f"r{rank} training", training, study, f"r{rank}", rank=rank)
        for scheme in config.evaluated:
            study.measure(f"r{rank} {scheme}", answered, rank, scheme)


def start(argv: Sequence[str] | None = None) -> None:
    main("ranks", RanksConfig, run, argv, __doc__)


if __name__ == "__main__":
    start()
