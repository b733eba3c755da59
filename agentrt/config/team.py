"""A team file: which roles, tools and limits, and how a turn follows a turn. Loading one loads no weights."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import Field, PrivateAttr

from agentrt.builtin import agents_dir, built_in_teams
from agentrt.config.checks import (
    Finding,
    check_adapters,
    check_limits,
    check_names,
    check_paths,
    check_secrets,
    check_tools,
)
from agentrt.config.flow import (
    DEFAULT,
    END,
    FINISH,
    ConstrainConfig,
    Emits,
    FlowConfig,
    RoleNode,
    ToolNode,
)
from agentrt.config.problems import in_order, suggest, validate
from agentrt.config.scheme import SchemeConfig, scheme_faults
from agentrt.config.sections import (
    IMAGE_TOOL,
    PRESETS,
    BaseConfig,
    DialectConfig,
    LimitsConfig,
    RoleConfig,
    SamplingConfig,
    ToolConfig,
)
from agentrt.config.strict import Name, Strict, Text
from agentrt.config.template import check_template
from agentrt.config.yaml import Document, Path_, plain, read_yaml
from agentrt.errors import ConfigError, Problem, UsageError

__all__ = [
    "DEFAULT",
    "END",
    "FINISH",
    "BaseConfig",
    "ConstrainConfig",
    "DialectConfig",
    "Emits",
    "FlowConfig",
    "LimitsConfig",
    "Override",
    "RoleConfig",
    "RoleNode",
    "SamplingConfig",
    "SchemeConfig",
    "Team",
    "ToolConfig",
    "ToolNode",
    "check_scheme",
]


class Override(NamedTuple):
    """A value that replaces one of the file; `origin` is what errors name, e.g. `--set limits.max_steps=5`."""

    path: tuple[str, ...]
    value: object
    origin: str


class Team(Strict):
    """The whole file, checked.

    `corpus`: what the offline tools read where nobody names another file. `train_on`: question files that adapters are
    trained on, with that corpus. Both are relative to the team file.
    """

    version: Literal[1]
    base: BaseConfig = BaseConfig()
    scheme: SchemeConfig = SchemeConfig()
    dialect: DialectConfig = DialectConfig()
    preamble: str = ""
    corpus: Text | None = None
    train_on: tuple[Text, ...] = ()
    roles: Annotated[Mapping[Name, RoleConfig], Field(min_length=1)]
    tools: Mapping[Name, ToolConfig] = Field(default_factory=dict)
    flow: FlowConfig
    limits: LimitsConfig = LimitsConfig()

    _document: Document = PrivateAttr(default_factory=lambda: Document("<team>"))
    _root: Path = PrivateAttr(default_factory=Path)
    _name: str = PrivateAttr(default="")

    @classmethod
    def load(cls, name_or_path: str | Path, *, overrides: Iterable[Override] = (), need_adapters: bool = True) -> Self:
        """A built-in team by name, or a team file by path.

        `need_adapters=False` skips the check that adapter folders exist (training is about to write them).
        Raises ConfigError with every problem of the file; UsageError for a name that is neither.
        """
        file = _find(name_or_path)
        document = read_yaml(file)
        name = file.parent.name if file.name == "team.yaml" else file.stem
        return cls._checked(document, file.parent, name, overrides, need_adapters)

    @classmethod
    def restore(
        cls,
        values: Mapping[str, Any],
        *,
        name: str,
        root: Path,
        overrides: Iterable[Override] = (),
        need_adapters: bool = True,
    ) -> Self:
        """The team whose `values()` these are, with changes. Raises ConfigError, as `load` does."""
        document = Document(f"<the saved team {name}>")
        document.data.update(plain(values))
        return cls._checked(document, root, name, overrides, need_adapters)

    @classmethod
    def _checked(
        cls, document: Document, root: Path, name: str, overrides: Iterable[Override], need_adapters: bool
    ) -> Self:
        for override in overrides:
            document.set(override.path, override.value, override.origin)
        team = validate(cls, document)
        team._document, team._root, team._name = document, root, name
        findings = [*team._cross_checks()]
        if need_adapters:
            findings += check_adapters(team.roles, team.base, team.root, team.reference)
        if findings:
            raise ConfigError(in_order(team.problem(*finding) for finding in findings))
        return team

    def sampling_as(self, preset: str) -> list[Override]:
        """What makes all roles sample as a preset says, each up to its own `max_new_tokens`.

        Raises UsageError for a preset that there is not.
        """
        if preset not in PRESETS:
            raise UsageError(f"no sampling preset {preset!r}{suggest(preset, PRESETS, 'presets')}")
        return [
            Override(
                ("roles", name, "sampling"),
                {"preset": preset, "max_new_tokens": role.sampling.max_new_tokens},
                f"--sampling {preset}",
            )
            for name, role in self.roles.items()
        ]

    def adapters_from(self, folder: Path) -> list[Override]:
        """What gives all roles that have an adapter the one in `folder`/<role>, as training leaves them."""
        return [
            Override(("roles", name, "adapter"), str(folder.resolve() / name), f"--adapters {folder}")
            for name in self.adapters()
        ]

    def values(self) -> dict[str, Any]:
        """The whole file with its changes, as JSON."""
        return self.model_dump(mode="json", exclude_none=True)

    @property
    def name(self) -> str:
        """The folder of a `team.yaml`, else the file's name without its ending; empty if not read from a file."""
        return self._name

    @property
    def root(self) -> Path:
        """The team file's folder: adapter paths are relative to it."""
        return self._root

    @property
    def source(self) -> str:
        """The team file as it was named."""
        return self._document.file

    @property
    def reference(self) -> str:
        """What `--team` takes for this team: the name of a built-in one, else its file."""
        built_in = self.name in built_in_teams() and self.root == agents_dir() / self.name
        return self.name if built_in else self.source

    @property
    def corpus_file(self) -> Path | None:
        """Where `corpus` lies; None if the team names none."""
        return None if self.corpus is None else self.root / self.corpus

    @property
    def training_files(self) -> tuple[Path, ...]:
        """Where the files of `train_on` lie."""
        return tuple(self.root / name for name in self.train_on)

    def adapter_name(self, role: str) -> str:
        """The path a role's turns take: its own name, or empty (the neutral path) for `adapter: none`."""
        return role if self.roles[role].has_adapter else ""

    def adapters(self) -> dict[str, Path]:
        """Role -> adapter folder, of the roles that have one."""
        return {name: self.root / role.adapter for name, role in self.roles.items() if role.has_adapter}

    @property
    def shows_images(self) -> bool:
        """Whether a tool tells what is in a question's image, so that the question need not."""
        return any(tool.use == IMAGE_TOOL for tool in self.tools.values())

    def problem(self, path: Path_, message: str, on_key: bool = False) -> Problem:
        """A Problem at a path of the file, e.g. `("roles", "plan", "adapter")`."""
        place = self._document.key_place(path) if on_key else self._document.place(path)
        return place.problem(message)

    def _cross_checks(self) -> Iterator[Finding]:
        undeclared = [*check_names(self.flow, self.roles, self.tools)]
        yield from undeclared or check_paths(self.flow)
        yield from check_secrets(self.tools)
        yield from check_tools(self.tools)
        yield from check_template(self.dialect, self.flow, self.preamble, self.roles)
        yield from check_limits(self.limits, self.flow)
        if self.train_on and self.corpus is None:
            yield Finding(("train_on",), "name the `corpus` that these questions are answered from", on_key=True)


def check_scheme(team: Team, known: Mapping[str, Iterable[str]]) -> list[Problem]:
    """Problems of the team's scheme, against `known`: scheme -> names of its options."""
    return [
        team.problem(("scheme", fault.option), fault.message, on_key=True)
        if fault.option
        else team.problem(("scheme", "name"), fault.message)
        for fault in scheme_faults(team.scheme, known)
    ]


def _find(name_or_path: str | Path) -> Path:
    if str(name_or_path) in built_in_teams():
        return agents_dir() / str(name_or_path) / "team.yaml"
    path = Path(name_or_path)
    if path.is_dir():
        path = path / "team.yaml"
    if path.is_file():
        return path
    tail = suggest(str(name_or_path), built_in_teams(), "built-in teams")
    raise UsageError(f"{name_or_path} is neither a team file nor a built-in team{tail}")
