"""Faults in a file -> Problems with file:line:col: what is wrong, did you mean, how to fix it.

Knows pydantic's error types, not what any file is for.
"""

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from agentrt.config.yaml import Document, Path_
from agentrt.errors import ConfigError, Problem

ModelT = TypeVar("ModelT", bound=BaseModel)

_SECRET = re.compile(r"(token|(api[_-]?key|secret|passw(or)?d|credential)s?)$", re.IGNORECASE)  # tokens are counted


def validate(model: type[ModelT], document: Document) -> ModelT:
    """The document as `model`. Raises ConfigError with one Problem per fault, in the order of the file."""
    try:
        return model.model_validate(document.data)
    except ValidationError as error:
        errors = _without_echoes(error.errors(include_url=False), document)
        raise ConfigError(in_order(_problem(item, model, document) for item in errors)) from None


def in_order(problems: Iterable[Problem]) -> list[Problem]:
    """Sorted by place, without repetitions."""
    return sorted(dict.fromkeys(problems), key=lambda p: (p.file, p.line, p.column))


def suggest(word: str, known: Iterable[str], listed_as: str) -> str:
    """The tail of a message about an unknown word: `: did you mean 'x'? (known keys: x, y)`, or just the list."""
    known = list(known)
    folded = {name.lower(): name for name in known}
    close = difflib.get_close_matches(word.lower(), folded, n=1, cutoff=0.6)
    listing = f"{listed_as}: {', '.join(known) or 'none'}"
    return f": did you mean {folded[close[0]]!r}? ({listing})" if close else f" ({listing})"


def looks_secret(key: str) -> bool:
    """Whether a key's value must not be stored or shown."""
    return _SECRET.search(key) is not None


def _without_echoes(errors: list[Any], document: Document) -> list[Any]:
    """Leave out a missing key where an unknown key beside it is a misspelling of it."""
    unknown: dict[Path_, list[str]] = {}
    for error in errors:
        if error["type"] == "extra_forbidden":
            path, _ = _document_path(error["loc"], document.data, "")
            unknown.setdefault(path[:-1], []).append(str(path[-1]))
    kept = []
    for error in errors:
        path, missing = _document_path(error["loc"], document.data, error["type"])
        if not (missing and difflib.get_close_matches(missing, unknown.get(path, []), cutoff=0.6)):
            kept.append(error)
    return kept


def _problem(error: Any, model: type[BaseModel], document: Document) -> Problem:
    path, missing = _document_path(error["loc"], document.data, error["type"])
    name = _name_of(path)
    kind: str = error["type"]
    given = error["input"]
    if kind == "extra_forbidden":
        known = _known_keys(model, path[:-1])
        if looks_secret(name):
            message = f"{name!r} does not belong in a file: secrets come from the environment or .env"
        else:
            message = f"unknown key {name!r}{suggest(name, known, 'known here')}"
        return document.key_place(path).problem(message)
    if kind == "missing":
        return document.key_place(path).problem(f"{missing!r} is missing: add `{missing}:` here")
    if error["loc"] and error["loc"][-1] == "[key]":
        return document.key_place(path).problem(f"{name!r} is no name: {_NAME_RULE}")
    return document.place(path).problem(f"{name}: {_message(kind, given, error)}")


_NAME_RULE = "a letter first, then letters, digits, _ and -"


def _message(kind: str, given: Any, error: Any) -> str:
    ctx: Mapping[str, Any] = error.get("ctx", {})
    shown = _show(given)
    if kind == "value_error":
        return str(ctx["error"])
    if kind == "string_type":
        if isinstance(given, (bool, int, float)):
            return f"text is expected, {shown} is {_kind_of(given)}: quote it, {_quoted(given)}"
        return f"text is expected, not {_kind_of(given)}"
    if kind == "bool_type":
        return f"true or false is expected, not {shown}"
    if kind in ("int_type", "int_from_float"):
        return f"a whole number is expected, not {shown}"
    if kind == "float_type":
        return f"a number is expected, not {shown}"
    if kind in ("tuple_type", "list_type"):
        hint = f": write [{given}]" if isinstance(given, str) else ""
        return f"a list is expected, not {_kind_of(given)}{hint}"
    if kind in ("dict_type", "mapping_type", "model_type", "model_attributes_type"):
        hint = ": fill it in, or leave the key out" if given is None else ""
        return f"a mapping (`key: value`) is expected, not {_kind_of(given)}{hint}"
    if kind == "literal_error":
        values = [word.strip("'") for word in re.split(r", | or ", str(ctx["expected"]))]
        values = [word.lower() if word in ("True", "False") else word for word in values]
        return f"{shown} is not allowed{suggest(str(given), values, 'allowed')}"
    if kind == "string_pattern_mismatch":
        return f"{shown} is no name: {_NAME_RULE}"
    if kind in ("string_too_short", "too_short"):
        return "must not be empty"
    bounds = {"greater_than": "gt", "greater_than_equal": "ge", "less_than": "lt", "less_than_equal": "le"}
    if kind in bounds:
        words = {"gt": "above", "ge": "at least", "lt": "below", "le": "at most"}
        return f"must be {words[bounds[kind]]} {ctx[bounds[kind]]}, not {shown}"
    return f"{error['msg']}, not {shown}"


def _name_of(path: Path_) -> str:
    """The last key, with the indices behind it: `choices[0]`."""
    if not path:
        return "the file"
    return f"{_name_of(path[:-1])}[{path[-1]}]" if isinstance(path[-1], int) else path[-1]


def _show(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return repr(value if len(value) <= 60 else value[:57] + "...")
    return _kind_of(value) if isinstance(value, (dict, tuple)) or value is None else str(value)


def _quoted(value: Any) -> str:
    return f'"{_show(value)}"'


def _kind_of(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, (int, float)):
        return "a number"
    if isinstance(value, str):
        return f"the text {_show(value)}"
    return "a list" if isinstance(value, tuple) else "a mapping"


def _document_path(loc: tuple[str | int, ...], data: Any, kind: str) -> tuple[Path_, str]:
    """Pydantic's location as a path of the document: union tags and `[key]` are left out.

    Also the name of a missing key, whose path ends at the mapping that lacks it.
    """
    if kind == "missing":
        parent, _ = _document_path(loc[:-1], data, "")
        return parent, str(loc[-1])
    path: list[str | int] = []
    for part in loc:
        if isinstance(data, dict) and part in data:
            data = data[str(part)]
        elif isinstance(data, tuple) and isinstance(part, int) and part < len(data):
            data = data[part]
        else:
            continue
        path.append(part)
    return tuple(path), ""


def _known_keys(model: type[BaseModel], path: Path_) -> list[str]:
    """Keys that the models at `path` accept; where a union leaves several models, the keys of all of them."""
    types: list[Any] = [model]
    for part in path:
        types = [inner for one in types for inner in _inside(one, part)]
    models = [one for top in types for one in _models(top)]
    return sorted({key for one in models for key, field in one.model_fields.items() if not field.exclude})


def _inside(annotation: Any, part: str | int) -> list[Any]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        field = annotation.model_fields.get(str(part))
        return [field.annotation] if field else []
    args = get_args(annotation)
    origin = getattr(annotation, "__origin__", None)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return [args[1]]
    return [inner for arg in args for inner in _inside(arg, part)]


def _models(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for arg in get_args(annotation) for model in _models(arg)]
