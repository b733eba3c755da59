"""Study (c): adapters of rank 4, 8, 16, 32, each scheme's divergence and accuracy on them.

`python -m benchmarks.studies.ranks --data DIR`
"""

from collections.abc import Sequence

from pydantic import Field

from agentrt.config.strict import PositiveInt, Text
from benchmarks.studies.harness import Study, main, slug
from benchmarks.studies.trained import TrainedConfig, drift_args, train_team


class RanksConfig(TrainedConfig):
    """`benchmark` is evaluated on `eval_questions`, the first `limit` of them."""

    ranks: tuple[PositiveInt, ...] = Field(min_length=1)
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
        for scheme in ("non_shared", *config.schemes):
            args = [*adapters, *plan, "--scheme", scheme]
            study.measure(f"r{rank} {scheme}", study.evaluate, f"{place}/eval/{slug(scheme)}", args)


def start(argv: Sequence[str] | None = None) -> None:
    main("ranks", RanksConfig, run, argv, __doc__)


if __name__ == "__main__":
    start()
