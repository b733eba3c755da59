"""The only YAML reader: text -> plain data in which every value knows its file, line and column.

Scalars follow YAML 1.2: only true/false are booleans, so `no`, `yes`, `on` and `off` stay the text they are.
Lists become tuples; keys starting with `x-` are the user's own (a place for anchors) and are left out.
Knows nothing of what the data means.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from agentrt.errors import ConfigError, Problem

Path_ = tuple[str | int, ...]
"""Keys and list indices that lead from the root of a document to a value."""

_MAX_VALUES: Final = 100_000
"""More values than this are taken for an alias bomb."""


class Place(NamedTuple):
    """Line and column count from 1; 0 where there is none (a flag, an environment variable)."""

    file: str
    line: int
    column: int

    def problem(self, message: str) -> Problem:
        return Problem(self.file, self.line, self.column, message)


class Document:
    """Plain data (dicts, tuples, scalars) with the place of every key and value."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.data: dict[str, Any] = {}
        self._values: dict[Path_, Place] = {}
        self._keys: dict[Path_, Place] = {}

    def place(self, path: Path_) -> Place:
        """Where the value at `path` begins, or the nearest enclosing value that exists."""
        return self._nearest(self._values, path)

    def key_place(self, path: Path_) -> Place:
        """Where the key of `path` stands; list items have none, so the value's place is used."""
        return self._keys.get(path) or self.place(path)

    def set(self, path: Path_, value: Any, origin: str) -> None:
        """Overlay a copy of one value, creating the mappings on the way; its place is `origin`, without a line.

        Raises ConfigError where `path` leads through something that is not a mapping.
        """
        here = self.data
        for depth, key in enumerate(path[:-1]):
            inner = here.setdefault(str(key), {})
            if not isinstance(inner, dict):
                through = ".".join(map(str, path[: depth + 1]))
                raise ConfigError([Problem(origin, 0, 0, f"{through} is not a mapping: it holds {inner!r}")])
            here = inner
        here[str(path[-1])] = plain(value)
        place = Place(origin, 0, 0)
        for marks in (self._values, self._keys):
            for old in [known for known in marks if known[: len(path)] == path]:
                del marks[old]
            for depth in range(1, len(path) + 1):
                marks.setdefault(path[:depth], place)

    def mark(self, path: Path_, value: Place, key: Place | None = None) -> None:
        self._values[path] = value
        if key is not None:
            self._keys[path] = key

    def _nearest(self, marks: Mapping[Path_, Place], path: Path_) -> Place:
        while path and path not in marks:
            path = path[:-1]
        return marks.get(path, Place(self.file, 1, 1))


def plain(value: Any) -> Any:
    """JSON as this reader gives data: mappings are copied, lists are tuples."""
    if isinstance(value, Mapping):
        return {key: plain(inner) for key, inner in value.items()}
    return tuple(map(plain, value)) if isinstance(value, (list, tuple)) else value


def read_yaml(file: Path) -> Document:
    """Read a file whose root is a mapping.

    Raises ConfigError with every problem found: unreadable file, syntax, tabs, duplicate keys, a root that is not a
    mapping.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError([Problem(str(file), 1, 1, f"not UTF-8 text (byte {error.start})")]) from error
    except OSError as error:
        raise ConfigError([Problem(str(file), 0, 0, f"cannot be read: {error.strerror or error}")]) from error
    return parse_yaml(text, str(file))


def parse_yaml(text: str, file: str) -> Document:
    """Like `read_yaml`, for text; `file` is the name shown in errors."""
    document = Document(file)
    value = _read(text, document)
    if value is None:
        raise ConfigError([Problem(file, 1, 1, "the file is empty: `key: value` lines are expected")])
    if not isinstance(value, dict):
        raise ConfigError([document.place(()).problem("the file must be a mapping: `key: value` lines")])
    document.data = value
    return document


def parse_value(text: str, origin: str) -> Any:
    """A single value in YAML notation, as `--set key=value` takes it. Raises ConfigError."""
    try:
        return _read(text, Document(origin))
    except ConfigError as error:
        raise ConfigError([Problem(origin, 0, 0, problem.message) for problem in error.problems]) from None


def _read(text: str, document: Document) -> Any:
    """Plain data of the text's one document, None if there is none; fills the places of `document`."""
    builder = _Builder(document)
    try:
        node = _compose(text, document.file)
        value = None if node is None else builder.build(node, ())
    except RecursionError as error:
        raise ConfigError([Problem(document.file, 1, 1, "nested too deeply")]) from error
    if builder.problems:
        raise ConfigError(list(dict.fromkeys(builder.problems)))
    return value


class _Core(yaml.SafeLoader):
    """PyYAML's parser with the scalar rules of YAML 1.2's core schema."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - as PyYAML declares it


_NULL = "tag:yaml.org,2002:null"
_BOOL = "tag:yaml.org,2002:bool"
_INT = "tag:yaml.org,2002:int"
_FLOAT = "tag:yaml.org,2002:float"
_STR = "tag:yaml.org,2002:str"
_MERGE = "tag:yaml.org,2002:merge"
for _tag, _pattern, _first in (
    (_NULL, r"~|null|Null|NULL|", "~nN\0"),
    (_BOOL, r"true|True|TRUE|false|False|FALSE", "tTfF"),
    (_INT, r"[-+]?[0-9]{1,18}|0x[0-9a-fA-F]{1,16}|0o[0-7]{1,20}", "-+0123456789"),
    (_FLOAT, r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", "-+.0123456789"),
    (_MERGE, r"<<", "<"),
):
    _Core.add_implicit_resolver(
        _tag, re.compile(rf"(?:{_pattern})\Z"), ["" if first == "\0" else first for first in _first]
    )


def _compose(text: str, file: str) -> yaml.Node | None:
    try:
        return _Core(text).get_single_node()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        raise ConfigError([Problem(file, line, column, _syntax_message(error))]) from error
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        line, column = before.count("\n") + 1, error.position - (before.rfind("\n") + 1) + 1
        message = f"a character YAML does not allow (code {error.character:#x})"
        raise ConfigError([Problem(file, line, column, message)]) from error


def _syntax_message(error: yaml.MarkedYAMLError) -> str:
    problem = error.problem or "cannot be parsed"
    if "'\\t'" in problem:
        return "a tab: indent with spaces, YAML takes no tabs"
    if "mapping values are not allowed" in problem:
        return "a second `: ` in one line: quote the text, or break and indent the line"
    if "expected a single document" in problem or "another document" in problem:
        return "a second document (`---`): a file holds one, move it to a file of its own"
    if "undefined alias" in problem:
        return f"{problem}: an alias `*name` needs its anchor `&name` earlier in the file"
    if "expected ',' or ']'" in problem or "expected ',' or '}'" in problem:
        start = error.context_mark
        opened = f" (opened in line {start.line + 1})" if start else ""
        return f"this bracket's list or mapping is not closed{opened}: add a bracket or a comma ({problem})"
    return f"not valid YAML: {problem}"


class _Builder:
    """Turns composed nodes into plain data and collects what is wrong with them."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.problems: list[Problem] = []
        self._open: list[yaml.Node] = []
        self._built = 0

    def report(self, node: yaml.Node, message: str) -> None:
        self.problems.append(self._place(node).problem(message))

    def build(self, node: yaml.Node, path: Path_, key: yaml.Node | None = None) -> Any:
        self._built += 1
        if self._built > _MAX_VALUES:
            raise ConfigError([self._place(node).problem("aliases expand to too many values")])
        self.document.mark(path, self._place(node), self._place(key) if key is not None else None)
        if node in self._open:
            self.report(node, "an alias inside its own anchor")
            return None
        self._open.append(node)
        try:
            if isinstance(node, yaml.MappingNode):
                return self._mapping(node, path)
            if isinstance(node, yaml.SequenceNode):
                return tuple(self.build(item, (*path, index)) for index, item in enumerate(node.value))
            return self._scalar(node)
        finally:
            self._open.pop()

    def _mapping(self, node: yaml.MappingNode, path: Path_) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key, value in node.value:
            if key.tag == _MERGE:
                self._merge(value, path, result)
        seen: dict[str, yaml.Node] = {}
        for key, value in node.value:
            if key.tag == _MERGE:
                continue
            if not isinstance(key, yaml.ScalarNode):
                self.report(key, "a key must be plain text")
                continue
            name = key.value
            if name in seen:
                first = seen[name].start_mark.line + 1
                self.report(key, f"duplicate key {name!r} (first in line {first}): keep one")
            elif not name.startswith("x-"):
                result[name] = self.build(value, (*path, name), key)
            seen.setdefault(name, key)
        return result

    def _merge(self, value: yaml.Node, path: Path_, result: dict[str, Any]) -> None:
        """`<<: *anchor`, or a list of them; the first to name a key wins, the mapping's own keys win over all."""
        sources = value.value if isinstance(value, yaml.SequenceNode) else [value]
        for source in reversed(sources):
            if isinstance(source, yaml.MappingNode) and source not in self._open:
                result.update(self._mapping(source, path))
            else:
                self.report(value, "`<<` takes an alias of a mapping, or a list of them")

    def _scalar(self, node: yaml.Node) -> Any:
        text: str = node.value
        if node.tag == _STR:
            return text
        if node.tag == _NULL:
            return None
        if node.tag == _BOOL and text.lower() in ("true", "false"):
            return text.lower() == "true"
        try:
            if node.tag == _INT:
                return int(text, 0) if text[:2] in ("0x", "0o") else int(text)
            if node.tag == _FLOAT:
                return float(text)
        except ValueError:
            pass  # an explicit tag on text that is no number
        self.report(node, f"the tag {node.tag!r} does not suit this value: write the value plainly")
        return None

    def _place(self, node: yaml.Node) -> Place:
        return Place(self.document.file, node.start_mark.line + 1, node.start_mark.column + 1)
