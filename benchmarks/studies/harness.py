"""What all studies share: the config file, the result file with its origin, and going on where a study was stopped."""

import argparse
import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Generic, ParamSpec, TypeVar

from agentrt.cli.main import app
from agentrt.cli.options import resolve_settings
from agentrt.config.problems import validate
from agentrt.config.strict import Strict, Text
from agentrt.config.team import Team
from agentrt.config.yaml import read_yaml
from agentrt.errors import ConfigError, UsageError
from agentrt.evaluate.lines import replace_file
from benchmarks.machine import describe
from benchmarks.studies.tiny import tiny_team

CONFIGS: Final = Path(__file__).parent / "configs"
RESULTS: Final = Path(__file__).parents[1] / "results"


class StudyConfig(Strict):
    """What every config has. `sets` are changes of settings and team file, as `--set` takes them."""

    team: Text = "search"
    sets: tuple[Text, ...] = ()
    seed: int = 0


P = ParamSpec("P")
Config = TypeVar("Config", bound=StudyConfig)


class Study(Generic[Config]):
    """`rows`: what has been measured, by key, in the result file too. `work`: for evaluations and adapters."""

    def __init__(self, name: str, config: Config, work: Path, data: Path, out: Path, tiny: Sequence[str]) -> None:
        self.config, self.work, self._data, self._out = config, work, data, out
        self.team = ["--team", config.team, *tiny, *(word for each in config.sets for word in ("--set", each))]
        self._head = {"study": name, "config": config.model_dump(mode="json")}
        self.rows: dict[str, dict[str, Any]] = self._read()

    def path(self, name: str) -> Path:
        """A file that a config names: relative to the folder of the data."""
        return self._data / name

    def load_team(self, name: str | None = None) -> Team:
        """The team (None: the study's) with the study's changes, adapters or not."""
        return resolve_settings({"team": name or self.config.team}, self.team[3::2]).load_team(need_adapters=False)

    def measure(self, key: str, run: Callable[P, Mapping[str, Any]], *args: P.args, **named: P.kwargs) -> None:
        """The row of `key` is what `run` returns; it is called, and the row written, only where there is none yet.

        `origin` and `seconds` are of the call that ended it; where another began it in `work`, `begun` has its origin.
        """
        if key not in self.rows:
            origin, start = describe(), time.perf_counter()
            begun = self._begun(key, origin)
            row = {**run(*args, **named), "seconds": round(time.perf_counter() - start, 1), "origin": origin}
            self.rows[key] = row if begun == origin else {**row, "begun": begun}
            self._write()
            print(f"{key}: {self.rows[key]['seconds']} s", flush=True)

    def evaluate(self, place: str, args: Sequence[str]) -> dict[str, Any]:
        """`agentrt eval` into `work / place`, episodes that are there already included; its summary."""
        folder = self.work / place
        begun = sorted(each.name for each in folder.glob("*") if (each / "eval.json").is_file())
        resume = ["--resume", begun[0]] if begun else []
        command("eval", *self.team, "--out", str(folder), "--seed", str(self.config.seed), "-q", *resume, *args)
        summary: dict[str, Any] = json.loads((self.evaluation(place) / "summary.json").read_text(encoding="utf-8"))
        return summary

    def evaluation(self, place: str) -> Path:
        """The folder of the evaluation in `work / place`."""
        (found,) = (each for each in (self.work / place).iterdir() if (each / "eval.json").is_file())
        return found

    def drift(self, place: str, schemes: Sequence[str], args: Sequence[str]) -> dict[str, Any]:
        """The record of `agentrt drift`."""
        file = self.work / place / "drift.json"
        seed = ["--seed", str(self.config.seed)]
        command("drift", *self.team, *seed, "--schemes", ",".join(schemes), "--out", str(file), "-q", *args)
        record: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return record

    def _begun(self, key: str, origin: dict[str, Any]) -> dict[str, Any]:
        """The origin of the first call for this row."""
        note = self.work / "begun" / f"{slug(key)}.json"
        if not note.is_file():
            note.parent.mkdir(parents=True, exist_ok=True)
            replace_file(note, json.dumps(origin) + "\n")
        found: dict[str, Any] = json.loads(note.read_text(encoding="utf-8"))
        return found

    def _read(self) -> dict[str, dict[str, Any]]:
        if not self._out.is_file():
            return {}
        stored = json.loads(self._out.read_text(encoding="utf-8"))
        if {name: stored.get(name) for name in self._head} != json.loads(json.dumps(self._head)):
            raise UsageError(f"{self._out} holds the results of another study or config: name another with --out")
        rows: dict[str, dict[str, Any]] = stored["rows"]
        return rows

    def _write(self) -> None:
        self._out.parent.mkdir(parents=True, exist_ok=True)
        replace_file(self._out, json.dumps({**self._head, "rows": self.rows}, indent=1) + "\n")


def command(*args: str) -> None:
    """`agentrt ...` in this process. Raises RuntimeError where it fails; broken episodes are in the summary."""
    code = app(args=list(args), standalone_mode=False)
    if code not in (None, 0, 6):
        raise RuntimeError(f"agentrt {args[0]} ended with exit code {code}")


def slug(scheme: str) -> str:
    """A scheme, or the key of a row, as the name of a folder or file."""
    return scheme.replace(":", "-").replace(",", "-").replace("=", "").replace(" ", "-")


def main(
    name: str, kind: type[Config], run: Callable[[Study[Config]], None], argv: Sequence[str] | None, about: str | None
) -> None:
    """The command line of a study."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--config", type=Path, default=CONFIGS / f"{name}.yaml")
    parser.add_argument("--smoke", action="store_true", help="tiny random model, tiny data: does it run at all")
    parser.add_argument("--data", type=Path, default=Path("data"), help="folder of the files that the config names")
    parser.add_argument("--work", type=Path, help=f"evaluations and adapters; default: runs/studies/{name}")
    parser.add_argument("--out", type=Path, default=RESULTS / f"study-{name}.json")
    options = parser.parse_args(argv)
    if options.smoke and options.out == RESULTS / f"study-{name}.json":
        parser.error("--smoke: name a file with --out; nothing of a tiny model belongs among the results")
    work = options.work or Path("runs/studies") / (f"{name}-smoke" if options.smoke else name)
    file = CONFIGS / f"{name}.smoke.yaml" if options.smoke else options.config
    try:
        config = validate(kind, read_yaml(file))
    except ConfigError as error:
        parser.error(str(error))
    tiny = tiny_team(work / "tiny-team") if options.smoke else []
    run(Study(name, config, work, options.data, options.out, tiny))
