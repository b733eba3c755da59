"""A sharing scheme by name with its options. Which exist is known to `agentrt.schemes`, so callers pass them in."""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from pydantic import ConfigDict, Field

from agentrt.config.problems import suggest
from agentrt.config.strict import Scalar, Strict, Text
from agentrt.config.yaml import parse_value
from agentrt.errors import SchemeError

_BARE: Final = {"neutral_prefix": "boundary", "ridge": "maps"}
"""The option that may be written as a bare word, `neutral_prefix:question`; of other schemes the schedule."""


class SchemeConfig(Strict):
    """`{name: rebase_shared, schedule: lp}` in YAML, `rebase_shared:lp` in short."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Scalar] = Field(init=False)

    name: Text = "pre_lr_shared"

    @property
    def options(self) -> dict[str, Scalar]:
        return dict(self.__pydantic_extra__)

    def __str__(self) -> str:
        """The short spelling, which `parse_scheme` reads back."""
        bare = _bare(self.name)
        words = [
            str(value) if key == bare else f"{key}={str(value).lower() if value in (True, False) else value}"
            for key, value in self.options.items()
        ]
        return f"{self.name}:{','.join(words)}" if words else self.name


class SchemeFault(NamedTuple):
    """`option` is empty where the scheme itself is unknown."""

    option: str
    message: str


def parse_scheme(text: str) -> SchemeConfig:
    """Read `NAME[:WORD][,key=value...]`, e.g. `rebase_shared:lp`. Raises SchemeError for text of another form."""
    name, _, rest = text.partition(":")
    options: dict[str, Scalar] = {}
    for word in filter(None, rest.split(",")):
        key, equals, value = word.partition("=")
        key, value = (key.strip(), value.strip()) if equals else (_bare(name.strip()), key.strip())
        parsed = parse_value(value, f"--scheme {text}") if equals else value
        if not key or not isinstance(parsed, (str, int, float, bool)) or key in options or key == "name":
            raise SchemeError(f"--scheme {text}: cannot read {word!r}; write NAME:WORD,key=value,...")
        options[key] = parsed
    if not name.strip():
        raise SchemeError(f"--scheme {text!r}: a scheme name is missing; `agentrt schemes` lists them")
    return SchemeConfig.model_validate({"name": name.strip(), **options})


def _bare(name: str) -> str:
    return _BARE.get(name, "schedule")


def scheme_faults(scheme: SchemeConfig, known: Mapping[str, Iterable[str]]) -> list[SchemeFault]:
    """An unknown scheme, or options it does not have. `known`: scheme -> its options."""
    if scheme.name not in known:
        tail = suggest(scheme.name, known, "schemes")
        return [SchemeFault("", f"scheme {scheme.name!r} does not exist{tail}")]
    options = sorted(known[scheme.name])
    return [
        SchemeFault(option, f"{scheme.name} has no option {option!r}{suggest(option, options, 'options')}")
        for option in scheme.options
        if option not in options
    ]
