"""The content hash of a backbone's weights: the same for equal weights, however they are named, stored or sharded."""

import hashlib
import json
import mmap
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch
from transformers import PreTrainedModel

from agentrt.errors import BackboneError
from agentrt.model.cachedir import hash_once

_DTYPE_NAMES: Final[Mapping[torch.dtype, str]] = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
}  # as safetensors spells them


class _Entry(NamedTuple):
    dtype: str
    shape: tuple[int, ...]
    data: memoryview | bytes


def hash_weights(model: PreTrainedModel) -> str:
    """SHA-256, in hex, over the sorted names, dtypes, shapes and bytes of the parameters; tied ones count once.

    Equal to `hash_folder` of a folder that the model was saved to or loaded from without a change of dtype.
    """
    return _digest((name, _entry(weight)) for name, weight in sorted(model.named_parameters()))


def hash_folder(folder: Path) -> str:
    """The hash of a folder's safetensors files, from their bytes as stored; remembered. Units: hex digits.

    Raises BackboneError for a file that is no whole safetensors file.
    """
    files = sorted(folder.glob("*.safetensors"))

    def compute() -> str:
        entries: dict[str, _Entry] = {}
        for path in files:
            entries.update(_read(path))
        return _digest(sorted(entries.items()))

    return hash_once("weights", files, compute)


def _digest(entries: Iterable[tuple[str, _Entry]]) -> str:
    digest = hashlib.sha256()
    for name, entry in entries:
        digest.update(f"{name} {entry.dtype} {list(entry.shape)}\n".encode())
        digest.update(entry.data)
    return digest.hexdigest()


def _entry(weight: torch.Tensor) -> _Entry:
    flat = weight.detach().cpu().contiguous().view(-1).view(torch.uint8)
    return _Entry(_DTYPE_NAMES[weight.dtype], tuple(weight.shape), flat.numpy().data)


def _read(path: Path) -> dict[str, _Entry]:
    """The tensors of one file, over its mapped pages. Layout: 8 bytes of header length, JSON header, data."""
    try:
        with path.open("rb") as file:
            pages = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        (header_bytes,) = struct.unpack("<Q", pages[:8])
        start = 8 + header_bytes
        header: dict[str, Any] = json.loads(bytes(pages[8:start]))
        header.pop("__metadata__", None)
        spans = {
            name: (start + spec["data_offsets"][0], start + spec["data_offsets"][1]) for name, spec in header.items()
        }
        if max(end for _, end in spans.values()) > len(pages):
            raise ValueError("it ends before its last tensor")
    except (OSError, ValueError, KeyError, TypeError, struct.error, OverflowError) as error:
        raise BackboneError(f"{path} is damaged: {error}; fetch or copy it again") from error
    return {
        name: _Entry(spec["dtype"], tuple(spec["shape"]), pages[spans[name][0] : spans[name][1]])
        for name, spec in header.items()
    }
