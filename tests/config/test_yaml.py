"""The YAML reader: places, YAML 1.2 scalars, anchors, and refusals."""

from pathlib import Path

import pytest

from agentrt.config.yaml import parse_value, parse_yaml, read_yaml
from agentrt.errors import ConfigError


def test_words_that_yaml_1_1_reads_as_booleans_stay_words() -> None:
    data = parse_yaml("a: [yes, no, on, off, y, n, NO]\nno: x\n", "f").data
    assert data == {"a": ("yes", "no", "on", "off", "y", "n", "NO"), "no": "x"}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True),
        ("FALSE", False),
        ("~", None),
        ("", None),
        ("null", None),
        ("12", 12),
        ("-3", -3),
        ("010", 10),
        ("0x1F", 31),
        ("5e-5", 5e-5),
        (".5", 0.5),
        ("1:30", "1:30"),
        ("2001-01-01", "2001-01-01"),
        ("1_000", "1_000"),
        ("'12'", "12"),
        ("9" * 30, 1e30),
        ("[1, a]", (1, "a")),
        ("{a: 1}", {"a": 1}),
    ],
)
def test_scalars_follow_the_core_schema(text: str, value: object) -> None:
    parsed = parse_value(text, "--set")
    assert parsed == value
    assert type(parsed) is type(value)


def test_places_of_keys_values_and_items_count_from_one() -> None:
    document = parse_yaml("a:\n  b: [1,\n      22]\nc: |\n  text\n", "f.yaml")
    assert document.place(("a", "b", 1)) == ("f.yaml", 3, 7)
    assert document.key_place(("a", "b")) == ("f.yaml", 2, 3)
    assert document.place(("c",)) == ("f.yaml", 4, 4)
    assert document.place(("a", "absent", "deeper")) == ("f.yaml", 2, 3)


def test_anchors_and_merges_work_and_own_keys_win() -> None:
    text = "x-common: &c {a: 1, b: 2}\none: {<<: *c, b: 3}\ntwo: {b: 4, <<: [{b: 5, d: 6}, *c]}\nthree: *c\n"
    assert parse_yaml(text, "f").data == {
        "one": {"a": 1, "b": 3},
        "two": {"a": 1, "b": 4, "d": 6},
        "three": {"a": 1, "b": 2},
    }


def test_a_key_beside_a_merge_keeps_its_own_place() -> None:
    document = parse_yaml("x-c: &c {b: 2}\none: {b: 3, <<: *c}\n", "f")
    assert document.place(("one", "b")) == ("f", 2, 10)


def test_an_overlaid_value_is_placed_at_its_origin() -> None:
    document = parse_yaml("a: {b: {c: 1}}\n", "f")
    document.set(("a", "b"), {"c": 2}, "--set a.b={c: 2}")
    document.set(("new", "deep"), 3, "--set new.deep=3")
    assert document.data == {"a": {"b": {"c": 2}}, "new": {"deep": 3}}
    assert document.place(("a", "b", "c")) == ("--set a.b={c: 2}", 0, 0)
    assert document.place(("a",)) == ("f", 1, 4)
    with pytest.raises(ConfigError, match=r"new\.deep is not a mapping"):
        document.set(("new", "deep", "er"), 1, "--set new.deep.er=1")


def bomb(depth: int) -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, depth)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: &a [*a]\n", "inside its own anchor"),
        ("? [1]\n: 2\n", "key must be plain text"),
        ("a: !!python/name:os.system x\n", "tag"),
        ("a: !!int x\n", "tag"),
        ("a: \x07\n", "does not allow"),
        ("[" * 3000, "nested too deeply"),
        (bomb(8), "too many values"),
        ("a: {<<: 3}\n", "`<<`"),
        ("a: 'x\n", "not valid YAML"),
    ],
)
def test_text_that_is_refused(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        parse_yaml(text, "f")


def test_all_duplicate_keys_are_reported_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_yaml("a: 1\na: 2\nb: {c: 1, c: 2}\n", "f")
    assert [(p.line, p.column) for p in caught.value.problems] == [(2, 1), (3, 11)]


def test_files_that_cannot_be_read_are_config_errors(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        read_yaml(tmp_path / "absent.yaml")
    latin = tmp_path / "latin.yaml"
    latin.write_bytes("a: é".encode("latin-1"))
    with pytest.raises(ConfigError, match="not UTF-8"):
        read_yaml(latin)
