"""Study (b): whose path is the base, how much the adapter reads, and how hard the adapters were trained.

`pivot` and `adapted_tail` on the team's own adapters, then every scheme's loss, KL to non_shared in nats, on adapters
trained at each learning rate: `python -m benchmarks.studies.rebase --data DIR`.
"""

from collections.abc import Sequence

from pydantic import Field

from agentrt.config.strict import PositiveFloat, Text
from benchmarks.studies.harness import Study, main
from benchmarks.studies.trained import TrainedConfig, drift, drift_args, training


class RebaseConfig(TrainedConfig):
    variants: tuple[Text, ...] = Field(min_length=1)
    rates: tuple[PositiveFloat, ...] = Field(min_length=1)


def run(study: Study[RebaseConfig]) -> None:
    config = study.config
    study.measure("variants", study.drift, "variants", config.variants, drift_args(study))
    for rate in config.rates:
        study.measure(f"lr {rate:g}", drift, study, f"lr{rate:g}", lr=rate)
        study.measure(f"lr {rate:g} training", training, study, f"lr{rate:g}", lr=rate)


def start(argv: Sequence[str] | None = None) -> None:
    main("rebase", RebaseConfig, run, argv, __doc__)


if __name__ == "__main__":
    start()
