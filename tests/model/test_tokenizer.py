"""Text to ids and back: exact, without special tokens, segment by segment."""

import json
from pathlib import Path

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from agentrt.errors import BackboneError
from agentrt.model.tiny import tiny_tokenizer
from agentrt.model.tokenizer import Tokenizer

BYTE_LEVEL = tiny_tokenizer([("\u0120", "I"), ("t", "h"), ("]", ".")])


def _sentencepiece(style: str) -> Tokenizer:
    """A byte-fallback BPE as in Llama 2 and Mistral; `style` is which part adds the leading space."""
    pieces = ["\u2581", "a", "b", "n", "d", "\u2581a", "an", "and", "\u2581b"]
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *pieces]
    merges = [("\u2581", "a"), ("a", "n"), ("an", "d"), ("\u2581", "b")]
    backend = tokenizers.Tokenizer(
        tokenizers.models.BPE(
            vocab={token: place for place, token in enumerate(tokens)},
            merges=merges,
            byte_fallback=True,
            fuse_unk=True,
            unk_token="<unk>",
        )
    )
    if style == "normalizer":
        replace = tokenizers.normalizers.Replace(" ", "\u2581")
        backend.normalizer = tokenizers.normalizers.Sequence([tokenizers.normalizers.Prepend("\u2581"), replace])
    else:
        backend.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace(prepend_scheme="always", split=False)
    backend.decoder = tokenizers.decoders.Sequence(
        [
            tokenizers.decoders.Replace("\u2581", " "),
            tokenizers.decoders.ByteFallback(),
            tokenizers.decoders.Fuse(),
            tokenizers.decoders.Strip(" ", 1, 0),
        ]
    )
    backend.add_special_tokens(["<unk>", "<s>", "</s>"])
    return Tokenizer(backend.to_str(), eos_ids=[2])


@given(st.lists(st.text(), max_size=4))
def test_texts_of_segments_concatenate(segments: list[str]) -> None:
    ids = [token for segment in segments for token in BYTE_LEVEL.encode(segment)]
    assert BYTE_LEVEL.decode(ids) == "".join(segments)


@pytest.mark.parametrize("style", ["normalizer", "pre_tokenizer"])
@pytest.mark.parametrize("text", [" and b", "and", "  a\n\u00e9\U0001f389", "b </s> a"])
def test_sentencepiece_adds_no_space_before_a_segment(style: str, text: str) -> None:
    tokenizer = _sentencepiece(style)
    ids = [*tokenizer.encode(text), *tokenizer.encode(text)]
    assert tokenizer.decode(ids) == text + text


def test_special_token_text_is_read_as_ordinary_characters() -> None:
    ids = BYTE_LEVEL.encode("a<|im_end|>")
    assert not BYTE_LEVEL.special_ids & set(ids)
    assert len(ids) == len("a<|im_end|>")
    assert BYTE_LEVEL.decode(ids) == "a<|im_end|>"


def test_a_special_token_is_spelled_out_in_decoding() -> None:
    assert BYTE_LEVEL.decode([*BYTE_LEVEL.encode("so"), 2]) == "so<|im_end|>"
    assert BYTE_LEVEL.eos_ids == (2,)


def test_token_texts_show_merged_tokens() -> None:
    ids = BYTE_LEVEL.encode("x I th].")
    assert [BYTE_LEVEL.token_text(token) for token in ids] == ["x", " I", " ", "th", "]."]


def test_streaming_holds_back_an_unfinished_character() -> None:
    stream = BYTE_LEVEL.stream()
    assert [stream.push(token) for token in BYTE_LEVEL.encode("a\u00e9")] == ["a", "", "\u00e9"]
    assert stream.flush() == ""


def test_streaming_marks_a_character_that_stays_unfinished() -> None:
    stream = BYTE_LEVEL.stream()
    assert stream.push(BYTE_LEVEL.encode("\U0001f389")[0]) == ""
    assert stream.flush() == "\ufffd"


def test_ids_without_a_text_decode_to_nothing() -> None:
    assert BYTE_LEVEL.vocab_size == 262
    assert BYTE_LEVEL.decode([BYTE_LEVEL.vocab_size, -1]) == ""


def test_end_of_text_comes_from_both_configs(tmp_path: Path) -> None:
    backend = tokenizers.Tokenizer(tokenizers.models.BPE(vocab={"a": 0}, merges=[]))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel()
    backend.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "config.json").write_text(json.dumps({"eos_token_id": 7}))
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [9, 7]}))
    tokenizer = Tokenizer.from_folder(tmp_path)
    assert tokenizer.eos_ids == (7, 9)
    assert tokenizer.decode(tokenizer.encode("a")) == "a"  # the leading space of this file is gone


def test_a_tokenizer_that_loses_bytes_is_refused() -> None:
    backend = tokenizers.Tokenizer(tokenizers.models.WordPiece(vocab={"[UNK]": 0}, unk_token="[UNK]"))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    with pytest.raises(BackboneError, match="Whitespace are not supported"):
        Tokenizer(backend.to_str())


@pytest.mark.parametrize("content", ["", "{", "[]", '{"version": "1.0"}'])
def test_a_damaged_file_is_refused(content: str) -> None:
    with pytest.raises(BackboneError, match="damaged"):
        Tokenizer(content)


def test_a_folder_without_tokenizer_names_the_fix(tmp_path: Path) -> None:
    with pytest.raises(BackboneError, match=r"no tokenizer\.json; make one"):
        Tokenizer.from_folder(tmp_path)
