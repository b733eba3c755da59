"""Text to token ids and back, exactly: segments are encoded on their own and their texts concatenate.

Knows the `tokenizers` file format; nothing of roles, labels or models.
"""

import codecs
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import tokenizers

from agentrt.errors import BackboneError

_SPACE: Final = "\u2581"
"""How sentencepiece spells a space."""


class TextStream:
    """Decodes ids one at a time for display; bytes of an unfinished character wait for the ids that finish it."""

    def __init__(self, tokenizer: "Tokenizer") -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token_id: int) -> str:
        """The text that is certain now, perhaps empty."""
        return self._decoder.decode(self._tokenizer.token_bytes(token_id))

    def flush(self) -> str:
        """What is left at the end: one U+FFFD if a character stayed unfinished, else empty."""
        return self._decoder.decode(b"", final=True)


class Tokenizer:
    """A backbone's tokenizer, as the runtime and the engine use it.

    `encode` adds no special tokens, reads the text of special tokens as ordinary characters, and puts no space
    before a segment. (A sentencepiece vocabulary spells a space as U+2581 and takes that character for one.)
    Instances are immutable and may be shared.
    """

    def __init__(self, specification: str, *, eos_ids: Iterable[int] = ()) -> None:
        """`specification` is the content of a `tokenizer.json`. Raises BackboneError if it is not understood."""
        try:
            spec: dict[str, Any] = json.loads(specification)
            changed = _without_leading_space(spec)
            self._backend = tokenizers.Tokenizer.from_str(json.dumps(spec) if changed else specification)
        except Exception as error:  # tokenizers raises plain Exception
            raise BackboneError(f"the tokenizer file is damaged or not understood: {error}") from error
        self._backend.no_padding()
        self._backend.no_truncation()
        self._backend.encode_special_tokens = True
        self._bytes = _byte_table(spec, self._backend.get_vocab(with_added_tokens=True))
        self.eos_ids: tuple[int, ...] = tuple(sorted(set(eos_ids)))
        self.marks: tuple[str, ...] = tuple(_marks(spec))
        """Texts of tokens of their own: special ones, and others that look like markup, such as "<tool_call>". `encode`
        reads the first as plain text, but must take the others for what they are; so text from outside holds none."""
        self.special_ids: frozenset[int] = frozenset(
            entry["id"] for entry in spec.get("added_tokens", ()) if entry.get("special")
        )

    @classmethod
    def from_folder(cls, folder: Path) -> "Tokenizer":
        """Read `tokenizer.json`, and the end-of-text ids of `generation_config.json` and `config.json`."""
        path = folder / "tokenizer.json"
        if not path.is_file():
            raise BackboneError(
                f"{folder} has no tokenizer.json; make one with "
                "transformers.AutoTokenizer.from_pretrained(folder).save_pretrained(folder)"
            )
        return cls(path.read_text("utf-8"), eos_ids=_eos_ids(folder))

    def specification(self) -> str:
        """The content of a `tokenizer.json` that gives this tokenizer, end-of-text ids apart."""
        text: str = self._backend.to_str()
        return text

    @property
    def vocab_size(self) -> int:
        """One more than the largest id that has a text; a model's logits may be wider (padding)."""
        return len(self._bytes)

    def encode(self, text: str) -> list[int]:
        """Ids of `text`; `decode` gives it back (up to the model's own Unicode normalisation)."""
        ids: list[int] = self._backend.encode(text, add_special_tokens=False).ids
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """Text of `ids`, special tokens spelled out, nothing cleaned up; broken UTF-8 becomes U+FFFD."""
        return b"".join([self.token_bytes(token_id) for token_id in ids]).decode("utf-8", errors="replace")

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes one id stands for; empty for an id without a text."""
        return self._bytes[token_id] if 0 <= token_id < len(self._bytes) else b""

    def token_text(self, token_id: int) -> str:
        """The text of one id, for tries and stop strings; U+FFFD where it holds part of a character."""
        return self.token_bytes(token_id).decode("utf-8", errors="replace")

    def stream(self) -> TextStream:
        """A new incremental decoder."""
        return TextStream(self)


def _marks(spec: dict[str, Any]) -> Iterator[str]:
    """Words that a vocabulary was merely extended by are ordinary text and no marks."""
    for entry in spec.get("added_tokens", ()):
        if entry.get("special") or set("<>[]{}|") & set(entry["content"]):
            yield entry["content"]


def _without_leading_space(spec: dict[str, Any]) -> bool:
    """Remove every part that puts a space before a text; True if any was found."""
    changed = False
    for holder, key in (("normalizer", "normalizers"), ("pre_tokenizer", "pretokenizers")):
        part = spec.get(holder)
        if not part:
            continue
        if part["type"] == "Prepend":
            spec[holder] = None
            changed = True
        steps = part.get(key, [part])
        if key in part:
            part[key] = [step for step in steps if step["type"] != "Prepend"]
            changed |= len(part[key]) < len(steps)
        for step in steps:
            if step["type"] == "Metaspace" and step.get("prepend_scheme") != "never":
                step["prepend_scheme"] = "never"
                step.pop("add_prefix_space", None)
                changed = True
            elif step["type"] == "ByteLevel" and step.get("add_prefix_space"):
                step["add_prefix_space"] = False
                changed = True
    return changed


def _byte_table(spec: dict[str, Any], vocabulary: dict[str, int]) -> list[bytes]:
    """The bytes of every id; empty where the vocabulary has gaps."""
    kinds = _kinds(spec.get("decoder")) | _kinds(spec.get("pre_tokenizer"))
    byte_level = "ByteLevel" in kinds
    if not byte_level and not kinds & {"Metaspace", "ByteFallback"}:
        raise BackboneError(
            f"tokenizers of the kind {', '.join(sorted(kinds)) or 'unknown'} are not supported: "
            "only byte-level BPE and sentencepiece with byte fallback give back every byte"
        )
    alphabet = _byte_alphabet()
    verbatim = {entry["id"] for entry in spec.get("added_tokens", ())}
    table = [b""] * (max(vocabulary.values(), default=-1) + 1)
    for token, token_id in vocabulary.items():
        if token_id in verbatim:
            table[token_id] = token.encode()
        elif byte_level:
            table[token_id] = b"".join(alphabet.get(character, character.encode()) for character in token)
        elif len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
            table[token_id] = bytes([int(token[3:5], 16)])
        else:
            table[token_id] = token.replace(_SPACE, " ").encode()
    return table


def _kinds(part: dict[str, Any] | None) -> set[str]:
    if not part:
        return set()
    steps = part.get("decoders") or part.get("pretokenizers") or []
    return {part["type"], *(step["type"] for step in steps)}


def _byte_alphabet() -> dict[str, bytes]:
    """Byte-level BPE's spelling of bytes (GPT-2): printable Latin-1 stands for itself, the rest from U+0100 on."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    spelled = {chr(byte): bytes([byte]) for byte in printable}
    others = (byte for byte in range(256) if byte not in printable)
    return spelled | {chr(0x100 + place): bytes([byte]) for place, byte in enumerate(others)}


def _eos_ids(folder: Path) -> set[int]:
    found: set[int] = set()
    for name in ("generation_config.json", "config.json"):
        path = folder / name
        if path.is_file():
            try:
                value = json.loads(path.read_text("utf-8")).get("eos_token_id")
            except (ValueError, AttributeError) as error:
                raise BackboneError(f"{path} is damaged: {error}; fetch or copy the model again") from error
            found.update([value] if isinstance(value, int) else value or ())
    return found
