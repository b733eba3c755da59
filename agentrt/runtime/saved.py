"""What a run's folder remembers of how the run was started, so that another process can go on with it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from agentrt.config.team import Override, Team
from agentrt.errors import DataError, UsageError
from agentrt.model.cachedir import file_sha256
from agentrt.runtime.runlog import EVENTS_FILE, LoggedRun, read_run

_MAY_CHANGE: Final = ("scheme", "limits", "corpus", "train_on")
"""Of a team: its text, roles and tools are what the recorded tokens depend on. The corpus is one of the resources."""


class SavedTeam(BaseModel):
    """A team file with its changes; `root` is the folder that adapter paths are relative to."""

    model_config = ConfigDict(frozen=True)

    name: str
    root: str
    values: dict[str, Any]

    @classmethod
    def of(cls, team: Team) -> Self:
        return cls(name=team.name, root=str(team.root.resolve()), values=team.values())

    def load(self, *, overrides: tuple[Override, ...] = (), need_adapters: bool = True) -> Team:
        return Team.restore(
            self.values, name=self.name, root=Path(self.root), overrides=overrides, need_adapters=need_adapters
        )

    def check(self, team: Team) -> None:
        """Raises UsageError for a team that would have written other tokens."""
        now = team.values()
        for section in sorted({*self.values, *now} - {*_MAY_CHANGE}):
            if self.values.get(section) != now.get(section):
                raise UsageError(f"the run's team had other {section}: resume it with the team it was started with")


class Resources(BaseModel):
    """What a runtime was opened with besides its team; paths are absolute."""

    model_config = ConfigDict(frozen=True)

    corpus: str | None = None
    corpus_sha256: str | None = None
    """See `corpus_hash`."""
    record: str | None = None
    cassette: str | None = None
    dtype: str = "auto"
    device: str = "auto"
    offline: bool = False
    backend: Literal["auto", "triton", "jit", "reference"] = "auto"
    cuda_graphs: Literal["off", "auto"] = "off"
    kv_budget: float | str | None = None
    adapters: dict[str, str] = Field(default_factory=dict)


def corpus_hash(corpus: str | None) -> str | None:
    """SHA-256 of a corpus file's bytes, in hex; None where there is none to read, as where calls are played."""
    try:
        return None if corpus is None else file_sha256(Path(corpus))
    except OSError:
        return None


class SavedRun(BaseModel):
    """The header of `events.jsonl`, as far as a resume needs it."""

    model_config = ConfigDict(frozen=True)

    run_id: str
    question: str
    scheme: str
    seed: int
    adapters: dict[str, str]
    weights: dict[str, str]
    """See `agentrt.runtime.ports.Engine.weights`."""
    saved_team: SavedTeam
    resources: Resources
    note: dict[str, JsonValue] = Field(default_factory=dict)
    """See `RunOptions`."""

    def check_corpus(self, corpus: str) -> None:
        """Raises UsageError for a file that does not hold what the run's tools read."""
        if self.resources.corpus_sha256 not in (None, corpus_hash(corpus)):
            raise UsageError(f"{corpus} is not what run {self.run_id} read: name a copy of {self.resources.corpus}")

    def check_weights(self, weights: Mapping[str, str]) -> None:
        """Raises UsageError where the engine has other weights than the run had."""
        for name, digest in self.weights.items():
            if name in weights and weights[name] != digest:
                what = "backbone" if name == "base" else f"adapter {name!r}"
                raise UsageError(f"run {self.run_id} had another {what}: its recorded tokens do not belong to this one")


class FoundRun(NamedTuple):
    folder: Path
    saved: SavedRun
    logged: LoggedRun


def run_folder(run: str | Path, out: Path | None) -> Path:
    """The folder of a run, by its path or by its id under `out`. Raises UsageError where there is none."""
    places = [Path(run), *([out / run] if out is not None else [])]
    for place in places:
        if (place / EVENTS_FILE).is_file():
            return place
    listed = " nor ".join(map(str, dict.fromkeys(places)))
    raise UsageError(f"there is no run {run}: neither {listed} is a run folder; name one, or give --out DIR")


def find_run(run: str | Path, out: Path | None) -> FoundRun:
    """A run by the path of its folder, or by its id under `out`. Raises UsageError or DataError."""
    folder = run_folder(run, out)
    logged = read_run(folder)
    try:
        return FoundRun(folder, SavedRun.model_validate(logged.header), logged)
    except ValidationError as error:
        missing = ", ".join(".".join(map(str, fault["loc"])) for fault in error.errors())
        raise DataError(f"{folder / EVENTS_FILE}:1: cannot be resumed, its header lacks {missing}") from None
