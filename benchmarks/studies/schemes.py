"""Study (a): every scheme answers the same questions: `python -m benchmarks.studies.schemes --data DIR`.

A row a benchmark and scheme, one for the same loop with adapters off, and the paired differences from the benchmark's
first scheme.
"""

from collections.abc import Sequence
from typing import Any

from pydantic import Field

from agentrt.config.strict import PositiveInt, Strict, Text
from agentrt.evaluate.compare.result import compare, to_record
from agentrt.evaluate.compare.runs import load_runs
from benchmarks.studies.harness import Study, StudyConfig, main, slug


class BenchmarkConfig(Strict):
    """Questions as `agentrt eval` takes them; files are relative to --data, none for what is shipped.

    `team` answers them, the study's where none is named.
    """

    name: Text
    team: Text | None = None
    data: Text | None = None
    corpus: Text | None = None
    split: Text = "auto"
    limit: PositiveInt
    sets: tuple[Text, ...] = ()


class SchemesConfig(StudyConfig):
    benchmarks: tuple[BenchmarkConfig, ...] = Field(min_length=1)
    schemes: tuple[Text, ...] = Field(min_length=2)
    sampling: Text = "greedy"
    repeats: PositiveInt = 1
    concurrency: PositiveInt = 4
    without_adapters: bool = True


def eval_args(study: Study[SchemesConfig], benchmark: BenchmarkConfig) -> list[str]:
    config = study.config
    files = [("--data", benchmark.data), ("--corpus", benchmark.corpus)]
    named = [word for flag, file in files if file for word in (flag, str(study.path(file)))]
    plan = {"--split": benchmark.split, "--limit": benchmark.limit, "--sampling": config.sampling}
    plan |= {"--repeats": config.repeats, "--concurrency": config.concurrency}
    sets = [word for each in benchmark.sets for word in ("--set", each)]
    team = ["--team", benchmark.team] if benchmark.team else []  # the last --team counts
    return ["--benchmark", benchmark.name, *team, *named, *sets, *(str(word) for pair in plan.items() for word in pair)]


def adapters_off(study: Study[SchemesConfig], benchmark: BenchmarkConfig) -> list[str]:
    """Arguments that give the benchmark's team the bare model for every role."""
    team = study.load_team(benchmark.team)
    return [word for role in team.adapters() for word in ("--set", f"roles.{role}.adapter=none")]


def compared(study: Study[SchemesConfig], places: Sequence[str]) -> dict[str, Any]:
    folders = [str(study.evaluation(place)) for place in places]
    return to_record(compare(load_runs(folders, study.work)))


def run(study: Study[SchemesConfig]) -> None:
    for benchmark in study.config.benchmarks:
        args = eval_args(study, benchmark)
        places = {scheme: f"{benchmark.name}/{slug(scheme)}" for scheme in study.config.schemes}
        asked = {scheme: [*args, "--scheme", scheme] for scheme in places}
        if study.config.without_adapters:
            places["adapters off"] = f"{benchmark.name}/adapters-off"
            off = {"adapters off": [*args, "--scheme", "non_shared", *adapters_off(study, benchmark)]}
            asked = {**off, **asked}  # the cheapest question first: whether training did anything
        for each, words in asked.items():
            study.measure(f"{benchmark.name} {each}", study.evaluate, places[each], words)
        study.measure(f"{benchmark.name} compared", compared, study, list(places.values()))


def start(argv: Sequence[str] | None = None) -> None:
    main("schemes", SchemesConfig, run, argv, __doc__)


if __name__ == "__main__":
    start()
