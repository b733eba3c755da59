"""Study (e): drift on the trained adapters: handovers, hidden states and base caches, per layer.

`python -m benchmarks.studies.drift --data DIR`
"""

from collections.abc import Sequence

from pydantic import Field

from agentrt.config.strict import PositiveInt, Strict, Text
from benchmarks.studies.harness import Study, StudyConfig, main


class SamplesConfig(Strict):
    """Questions with supporting facts, relative to --data; None for the mini benchmark's."""

    name: Text
    questions: Text | None = None
    corpus: Text | None = None
    trajectories: PositiveInt


class DriftConfig(StudyConfig):
    samples: tuple[SamplesConfig, ...] = Field(min_length=1)
    schemes: tuple[Text, ...] = ("core",)


def run(study: Study[DriftConfig]) -> None:
    for each in study.config.samples:
        files = [("--questions", each.questions), ("--corpus", each.corpus)]
        args = [word for flag, file in files if file for word in (flag, str(study.path(file)))]
        args += ["--limit", str(each.trajectories)]
        study.measure(each.name, study.drift, each.name, study.config.schemes, args)


def start(argv: Sequence[str] | None = None) -> None:
    main("drift", DriftConfig, run, argv, __doc__)


if __name__ == "__main__":
    start()
