import pytest

from agentrt.config.sections import DialectConfig
from agentrt.runtime.dialect import FieldText, Renderer
from agentrt.testing import ByteTokenizer


@pytest.fixture
def renderer() -> Renderer:
    return Renderer(DialectConfig(), ByteTokenizer("]\n", "\n\n", "[ ", eos_ids=[0]))


def text(renderer: Renderer, *segments: list[int]) -> str:
    return "".join(renderer.tokenizer.decode(segment) for segment in segments)


def test_segments_join_to_the_documented_layout(renderer: Renderer) -> None:
    r = renderer
    rendered = text(
        r,
        r.preamble("Answer.\n\n"),
        r.question("Who\n is it? "),
        r.label("thought"),
        r.field("thought", "I look."),
        r.after("thought"),
        r.label("action"),
        r.field("action", "Search"),
        r.label("argument"),
        r.field("argument", "it"),
        r.observation("Found\nit."),
        r.label("action"),
        r.field("action", "Finish"),
        r.label("argument"),
        r.field("argument", "It"),
        r.after("argument"),
        r.label("verdict"),
        r.field("verdict", "right"),
        r.after("verdict"),
    )
    assert rendered == (
        "Answer.\nQuestion: Who is it?\nThought: I look.\nAction: Search[ it]\nObservation: Found it.\n"
        "Action: Finish[ It]\nAction: Reflect[ right]\n"
    )


def test_each_segment_is_tokenised_by_itself(renderer: Renderer) -> None:
    merged = renderer.tokenizer.encode("]\n")
    assert len(merged) == 1
    assert renderer.field("argument", "x") + renderer.after("argument") == [*b" x", ord("]"), ord("\n")]


def test_empty_texts_render_nothing(renderer: Renderer) -> None:
    assert renderer.preamble(" \n") == []
    assert renderer.after("thought") == []


@pytest.mark.parametrize(
    ("emits", "written", "expected"),
    [
        ("thought", " I look.\n", FieldText("I look.", "", True)),
        ("thought", " I look.\n\n", FieldText("I look.", "\n", True)),
        ("thought", " cut of", FieldText("cut of", "", False)),
        ("argument", " it]", FieldText("it", "", True)),
        ("argument", " it]\n", FieldText("it", "\n", True)),
        ("argument", " it\n", FieldText("it", "\n", False)),
        ("argument", "]", FieldText("", "", True)),
        ("action", " Search[ ", FieldText("Search", "[ ", True)),
        ("verdict", " right]", FieldText("right", "", True)),
        ("thought", " done\0", FieldText("done", "", False)),
    ],
)
def test_a_field_ends_at_its_first_stop_and_the_rest_is_its_tail(
    renderer: Renderer, emits: str, written: str, expected: FieldText
) -> None:
    assert renderer.read(emits, renderer.tokenizer.encode(written)) == expected  # type: ignore[arg-type]


def test_a_tail_is_left_out_of_the_segment_that_follows(renderer: Renderer) -> None:
    assert text(renderer, renderer.observation("Yes.", "\n")) == "Observation: Yes.\n"
    assert renderer.after("argument", "\n") == []
    assert renderer.label("argument", "[ ") == []
    assert text(renderer, renderer.observation("Yes.", ".")) == "\nObservation: Yes.\n"


def test_a_stop_string_is_seen_inside_a_merged_token_but_not_before_it(renderer: Renderer) -> None:
    argument = renderer.tokenizer.encode(" it]\n")
    assert [renderer.stopped("argument", argument[:n]) for n in range(1, len(argument) + 1)] == [
        *[False] * 3,
        True,
    ]


def test_the_end_of_text_stops_a_field(renderer: Renderer) -> None:
    assert renderer.stopped("thought", [ord("x"), 0])


def test_a_stop_string_of_several_tokens_is_seen() -> None:
    renderer = Renderer(DialectConfig(end="\n###\n"), ByteTokenizer())
    written = [*b" yes\n###\n"]
    assert not renderer.stopped("thought", written[:-1])
    assert renderer.stopped("thought", written)
    assert renderer.read("thought", written) == FieldText("yes", "", True)
