"""Study (c): adapters of rank 4, 8, 16, 32: what they learn, each scheme's divergence, some schemes' accuracy.

`python -m benchmarks.studies.ranks --data DIR`
"""

from collections.abc import Sequence

from pydantic import Field

from agentrt.config.strict import PositiveInt, Text
from benchmarks.studies.harness import Study, main, slug
from benchmarks.studies.trained import TrainedConfig, drift_args, train_team, training


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
    for rank in config.ranks:
        place = f"r{rank}"
        adapters = train_team(study, place, rank=rank)
        study.measure(f"r{rank} drift", study.drift, place, config.schemes, [*adapters, *drift_args(study)])
        study.measure(f"r{rank} training", training, study, place)
        for scheme in config.evaluated:
            args = [*adapters, *plan, "--scheme", scheme]
            study.measure(f"r{rank} {scheme}", study.evaluate, f"{place}/eval/{slug(scheme)}", args)


def start(argv: Sequence[str] | None = None) -> None:
    main("ranks", RanksConfig, run, argv, __doc__)


if __name__ == "__main__":
    start()
