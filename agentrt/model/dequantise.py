"""A GGUF file turned once into an ordinary folder: config, tokenizer.json and bfloat16 safetensors.

Why bfloat16: the checkpoints people quantise are published in it, and rounding to it moves a weight by at most
2**-9 of its value, far below the step of a 4-bit block. It halves the disk and the later load, and fp32 and bf16
runs then share one set of weights.
"""

import io
import re
import sys
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any, Final, TextIO

import torch
from gguf import GGUFReader
from tokenizers import pre_tokenizers
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GgufConfig

from agentrt.errors import BackboneError
from agentrt.model.families import supported
from agentrt.model.progress import Report

# Values of tokenizer.ggml.pre (llama.cpp) for byte-level BPE.
_ONE_DIGIT_AT_A_TIME: Final = {"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone"}
"""Split every digit off, then as GPT-2. transformers 5.24 leaves the digits out and so splits "\\n\\n1." wrongly."""

_CONVERTED_WELL: Final = {
    "gpt-2",
    "llama-bpe",
    "llama3",
    "llama-v3",
    "smaug-bpe",
    "tekken",
    "qwen2",
    "deepseek-r1-qwen",
}
"""Splits that transformers' conversion knows."""


def dequantise(gguf_file: Path, folder: Path, report: Report) -> None:
    """Write the model of `gguf_file` into the empty `folder`: about 20 s for a vocabulary of 49,152 on one core.

    Raises BackboneError for a damaged file, an unsupported family, or a tokenizer that cannot be converted faithfully.
    """
    place: dict[str, Any] = {
        "pretrained_model_name_or_path": str(gguf_file.parent),
        "gguf_file": gguf_file.name,
        "local_files_only": True,
    }
    reading = f"Reading {gguf_file.name}"
    report(reading, 0, 3)
    splitter = _splitter(gguf_file)
    load_config: Any = AutoConfig.from_pretrained
    load_model: Any = AutoModelForCausalLM.from_pretrained
    load_tokenizer: Any = AutoTokenizer.from_pretrained
    with redirect_stderr(_Bars(sys.stderr, report)):
        try:
            report(reading, 1, 3)
            config = load_config(**place)
            supported(config)
            report(reading, 2, 3)
            backend = load_tokenizer(**place, config=config).backend_tokenizer
            report(reading, 3, 3)
            quantisation = GgufConfig(dequantize=True)
            model, facts = load_model(
                **place,
                config=config,
                quantization_config=quantisation,
                dtype=torch.float32,
                output_loading_info=True,
            )
        except (ValueError, KeyError, IndexError, RuntimeError, OSError) as error:
            raise BackboneError(f"{gguf_file} cannot be read as a GGUF model: {error}") from error
        if absent := sorted(facts["missing_keys"]):  # transformers would fill them with random numbers
            raise BackboneError(
                f"{gguf_file} lacks {len(absent)} weights of a {config.model_type} model, among them {absent[0]}"
            )
        if splitter is not None:
            backend.pre_tokenizer = splitter
        model.to(torch.bfloat16).save_pretrained(folder)
    backend.save(str(folder / "tokenizer.json"))


def _splitter(gguf_file: Path) -> pre_tokenizers.PreTokenizer | None:
    """How text is split before BPE, where transformers' conversion would get it wrong; None where it is right."""
    try:
        fields = GGUFReader(gguf_file).fields
        kind = fields["tokenizer.ggml.model"].contents()
        split = fields["tokenizer.ggml.pre"].contents() if "tokenizer.ggml.pre" in fields else "unnamed"
    except (ValueError, KeyError, IndexError, OSError) as error:
        raise BackboneError(f"{gguf_file} is no GGUF file with a tokenizer, or is damaged: {error}") from error
    if kind != "gpt2" or split in _CONVERTED_WELL:
        return None
    if split in _ONE_DIGIT_AT_A_TIME:
        digits = pre_tokenizers.Digits(individual_digits=True)
        return pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    raise BackboneError(
        f"{gguf_file} splits text in a way ('{split}') that its conversion would not reproduce; "
        "use the model's safetensors folder instead"
    )


class _Bars(io.TextIOBase):
    """Stands in for stderr: turns the text bars of transformers into reports, passes everything else on."""

    def __init__(self, stderr: TextIO, report: Report) -> None:
        self._stderr = stderr
        self._report = report

    def write(self, text: str) -> int:
        if bar := re.search(r"([^:\r]*):?\s+\d+%\|.*?(\d+)/(\d+) \[", text):
            stage, done, total = bar.groups()
            self._report(stage.strip(" ."), int(done), int(total))
        elif text.strip() and not re.search(r"\d+it \[", text):  # a bar without a total
            self._stderr.write(text)
        return len(text)
