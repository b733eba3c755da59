"""Study (b): whose path is the base, how much the adapter reads, and how hard the adapters were trained.

`pivot` and `adapted_tail` on the team's own adapters, then every scheme's loss, KL to non_shared in nats, on adapters
trained at each learning rate: `python -m benchmarks.studies.rebase --data DIR`.
"""

from collections.abc import Sequence
from typing import Any

from pydantic import Field

from agentrt.config.strict import PositiveFloat, Text
from benchmarks.studies.harness import Study, main
from benchmarks.studies.trained import TrainedConfig, drift_args, train_team, training


class RebaseConfig(TrainedConfig):
    variants: tuple[Text, ...] = Field(min_length=1)
    rates: tuple[PositiveFloat, ...] = Field(min_length=1)


def run(study: Study[RebaseConfig]) -> None:
    config, samples = study.config, drift_args(study)
    study.measure("variants", study.drift, "variants", config.variants, samples)

    def at(rate: float) -> dict[str, Any]:
        place = f"lr{rate:g}"
        return study.drift(place, config.schemes, [*train_team(study, place, lr=rate), *samples])

    for rate in config.rates:
        study.measure(f"lr {rate:g}", at, rate)
        study.measure(f"lr {rate:g} training", training, study, f"lr{rate:g}")


def start(argv: Sequence[str] | None = None) -> None:
    main("rebase", RebaseConfig, run, argv, __doc__)


if __name__ == "__main__":
    start()
