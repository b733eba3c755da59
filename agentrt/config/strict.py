"""The base of every model that a YAML file fills: strict types, no unknown keys, frozen."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Discriminator, Field


def _allow_own_keys(schema: dict[str, Any]) -> None:
    """In the JSON schema, as in the reader: keys starting with `x-` are the user's own."""
    schema["patternProperties"] = {"^x-": {}}


class Strict(BaseModel):
    """No coercion: text is not a number, a number is not text, only true and false are booleans."""

    model_config = ConfigDict(
        strict=True, extra="forbid", frozen=True, allow_inf_nan=False, json_schema_extra=_allow_own_keys
    )


Scalar = str | int | float | bool
Text = Annotated[str, Field(min_length=1)]
PositiveInt = Annotated[int, Field(gt=0)]
PositiveFloat = Annotated[float, Field(gt=0)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_-]*$")]
"""A role, node, tool or scheme: a letter first, then letters, digits, `_` and `-`."""


# Tags of a union's members hold a blank, so that they never look like a key of the file.
TEXT = "as text"
OTHER = "as other"


def _text_or_other(value: Any) -> str:
    return TEXT if isinstance(value, str) else OTHER


TextOrOther = Discriminator(_text_or_other)
"""Chooses between `Annotated[..., Tag(TEXT)]` and `Annotated[..., Tag(OTHER)]`, so that an error speaks of one."""
