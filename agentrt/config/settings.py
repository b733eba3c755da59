"""Run settings and where each came from: `--set` > flags > AGENTRT_* > ./agentrt.yaml > user file > defaults.

Holds no secret: keys of tools are read from the environment by the tools themselves.
"""

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple

from platformdirs import user_config_path
from pydantic import Field, ValidationError

from agentrt.config.budget import BudgetText
from agentrt.config.problems import looks_secret, suggest, validate
from agentrt.config.scheme import parse_scheme
from agentrt.config.strict import PositiveInt, Strict, Text
from agentrt.config.team import Override, Team
from agentrt.config.yaml import Document, parse_value, read_yaml
from agentrt.errors import ConfigError, Problem

FILE_NAME: Final = "agentrt.yaml"
ENV_PREFIX: Final = "AGENTRT_"


class Settings(Strict):
    """What a run takes besides its question. `overrides` replaces values of the team file, in its own shape."""

    team: Text = "search"
    scheme: Text | None = None
    seed: Annotated[int, Field(ge=0)] = 0
    out: Text = "runs"
    offline: bool = False
    device: Literal["auto", "cpu", "cuda"] = "auto"
    backend: Literal["auto", "triton", "jit", "reference"] = "auto"
    cuda_graphs: Literal["off", "auto"] = "off"
    threads: PositiveInt | None = None
    corpus: Text | None = None
    kv_budget: BudgetText | None = None
    overrides: Mapping[str, Any] = Field(default_factory=dict)


class Resolved(NamedTuple):
    """Settings, the origin of each value by dotted name, and the team file's replaced values.

    overrides: of all sources, the weakest first; the setting `scheme` is one of them, and replaces the whole section.
    sets: those of `--set` alone, which win over every flag.
    """

    settings: Settings
    origins: Mapping[str, str]
    overrides: Sequence[Override]
    sets: Sequence[Override]

    def given(self, name: str) -> bool:
        """Whether the command line itself says this setting, by a flag or `--set`."""
        return self.origins[name].startswith("--")

    def load_team(
        self, *, need_adapters: bool = True, adapters: Path | None = None, sampling: str | None = None
    ) -> Team:
        """The team these settings name, with their changes. Raises ConfigError and UsageError.

        `adapters`: a folder to take the roles' adapters from, see `Team.adapters_from`; `sampling`: a preset for all
        roles, see `Team.sampling_as`. Both are flags: stronger than a settings file, weaker than `--set`.
        """
        name, own = self.settings.team, need_adapters and adapters is None
        team = Team.load(name, overrides=self.overrides, need_adapters=own)
        flags = team.adapters_from(adapters) if adapters is not None else []
        flags += team.sampling_as(sampling) if sampling is not None else []
        if not flags:
            return team
        return Team.load(name, overrides=[*self.overrides, *flags, *self.sets], need_adapters=need_adapters)


def user_file() -> Path:
    """The user's own settings file; it need not exist."""
    return user_config_path("agentrt", appauthor=False) / FILE_NAME


def resolve(
    *,
    flags: Mapping[str, Any],
    sets: Sequence[str],
    environ: Mapping[str, str],
    files: Sequence[Path],
) -> Resolved:
    """Lay the sources over each other, the weakest first. A flag that is None was not given.

    `files`: settings files, the weaker first; those that do not exist are skipped. Every source is checked by
    itself, so that an error names the file and line, the variable or the flag. Raises ConfigError.
    """
    weaker = [*(read_yaml(file) for file in files if file.is_file()), _environment(environ), _flags(flags)]
    stronger = [*map(_set, sets)]
    values = Settings().model_dump()
    origins = dict.fromkeys((key for key in values if key != "overrides"), "default")
    for layer in [*weaker, *stronger]:
        values.update({key: value for key, value in validate(Settings, layer) if key in layer.data})
        origins.update({".".join(path): _origin(layer, path) for path in _leaves(layer.data)})
    values["overrides"] = {}
    resolved = Settings.model_validate(values)
    return Resolved(resolved, origins, _overrides([*weaker, *stronger]), _overrides(stronger))


def _environment(environ: Mapping[str, str]) -> Document:
    names = {key.upper(): key for key in Settings.model_fields if key != "overrides"}
    document = Document("the environment")
    problems = []
    for variable, text in sorted(environ.items()):
        if not variable.startswith(ENV_PREFIX) or not text:
            continue
        name = variable.removeprefix(ENV_PREFIX)
        if name not in names:  # other programs and our own parts have variables too: only a near miss is a mistake
            for close in difflib.get_close_matches(name, names, n=1, cutoff=0.8):
                problems.append(Problem(variable, 0, 0, f"no such setting: did you mean {ENV_PREFIX}{close}?"))
            continue
        key = names[name]
        try:
            value = getattr(Settings.model_validate_strings({key: text}), key)
        except ValidationError as error:
            problems.append(Problem(variable, 0, 0, f"{error.errors()[0]['msg']}, not {text!r}"))
        else:
            document.set((key,), value, variable)
    if problems:
        raise ConfigError(problems)
    return document


def _flags(flags: Mapping[str, Any]) -> Document:
    document = Document("the command line")
    for key, value in flags.items():
        if value is not None:
            document.set((key,), value, "--" + key.replace("_", "-"))
    return document


def _set(text: str) -> Document:
    """One `--set a.b=c`: a single name is a setting, a dotted one (or a section's name) a value of the team file."""
    name, equals, value = text.partition("=")
    path = tuple(name.strip().split("."))
    may_hold_secret = "{" in value or ":" in value or any(map(looks_secret, path))  # in a mapping, read or misspelled
    origin = f"--set {name}=..." if may_hold_secret else f"--set {text}"
    if not equals or not all(path):
        raise ConfigError([Problem(origin, 0, 0, "write --set name=value, or --set section.name=value")])
    document = Document(origin)
    if len(path) == 1 and path[0] not in Settings.model_fields:
        if path[0] not in Team.model_fields:
            known = [*Settings.model_fields, *Team.model_fields]
            tail = suggest(path[0], dict.fromkeys(known), "known")
            raise ConfigError([Problem(origin, 0, 0, f"no setting is called {path[0]!r}{tail}")])
        path = ("overrides", *path)
    elif len(path) > 1 and path[0] != "overrides":
        path = ("overrides", *path)
    document.set(path, parse_value(value, origin), origin)
    return document


def _overrides(layers: Iterable[Document]) -> list[Override]:
    """What the layers replace of the team file, the weakest first, without what a later one replaces in turn.

    A scheme of null takes back what weaker layers say of it.
    """
    laid: list[Override] = []
    for change in (change for layer in layers for change in _changes(layer)):
        laid = [each for each in laid if each.path[: len(change.path)] != change.path]
        if change.path != ("scheme",) or change.value is not None:
            laid.append(change)
    return laid


def _changes(layer: Document) -> Iterator[Override]:
    """One layer's: its scheme first, so that options beside it are the scheme's own."""
    if "scheme" in layer.data:
        text = layer.data["scheme"]
        value = parse_scheme(text).model_dump() if text is not None else None
        yield Override(("scheme",), value, _origin(layer, ("scheme",)))
    replaced = layer.data.get("overrides", {})
    for path in _leaves(replaced):
        yield Override(path, _at(replaced, path), _origin(layer, ("overrides", *path)))


def _origin(layer: Document, path: tuple[str, ...]) -> str:
    place = layer.place(path)
    return f"{place.file}:{place.line}" if place.line else place.file


def _leaves(data: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for key, value in data.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, (*path, key))
        else:
            yield (*path, key)


def _at(data: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    value: Any = data
    for key in path:
        value = value[key]
    return value
