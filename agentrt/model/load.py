"""The one way a backbone gets into memory: model, tokenizer and content hash, checked before use."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import torch
from safetensors import SafetensorError
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel
from transformers.utils import logging as transformers_logging

from agentrt.errors import BackboneError
from agentrt.model.families import supported
from agentrt.model.fetch import locate
from agentrt.model.hashing import hash_folder
from agentrt.model.progress import Report, progress_bar
from agentrt.model.sources import Sources
from agentrt.model.tokenizer import Tokenizer

DtypeName = Literal["auto", "float32", "bfloat16", "float16"]

_DTYPES: Final[dict[str, torch.dtype]] = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


class LoadedModel(NamedTuple):
    """A backbone in memory. `names`: what an adapter may call its base, the public name first.

    `content_hash` (SHA-256, hex) is of the weights as stored; what dtype they were loaded in is `model.dtype`.
    """

    model: PreTrainedModel
    tokenizer: Tokenizer
    names: tuple[str, ...]
    content_hash: str
    folder: Path

    @property
    def name(self) -> str:
        """The public name: the hub id, or the path of a model that has none."""
        return self.names[0]


def load_model(
    name: str,
    *,
    dtype: DtypeName | torch.dtype = "auto",
    device: str = "auto",
    offline: bool = False,
    report: Report | None = None,
    sources: Sources | None = None,
) -> LoadedModel:
    """Load a causal LM in eval mode, frozen, with the attention transformers chooses.

    `name`: folder, `.gguf` file, hub id or short name (see fetch.py). `dtype` "auto" is bfloat16 where the device
    multiplies it fast, else float32; `device` "auto" is CUDA where there is one. `report` None draws a progress
    bar for the first fetch if stderr is a terminal. Raises BackboneError: not found, damaged, not supported.
    """
    target = choose_device(device)
    wanted = choose_dtype(dtype, target)
    with progress_bar() if report is None else nullcontext(report) as bar:
        located = locate(name, offline=offline, report=bar, sources=sources)
    folder = located.folder
    config = read_config(folder)
    tokenizer = Tokenizer.from_folder(folder)
    if tokenizer.vocab_size > config.vocab_size:
        raise BackboneError(
            f"{folder}: the tokenizer has {tokenizer.vocab_size} ids but the model only {config.vocab_size}; "
            "they do not belong together"
        )
    content_hash = hash_folder(folder)
    model = _load_weights(folder, config, wanted).to(target)  # type: ignore[arg-type]  # transformers narrows nn.Module.to
    model.name_or_path = located.names[0]
    model.train(False)
    model.requires_grad_(False)
    return LoadedModel(model, tokenizer, located.names, content_hash, folder)


def choose_device(device: str) -> torch.device:
    """CUDA where there is one, else the CPU, for "auto". Raises BackboneError for a device that is not there."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(device)
        torch.empty(0, device=chosen)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        raise BackboneError(f"device '{device}' cannot be used here ({reason}); use cpu or auto") from error
    return chosen


def choose_dtype(dtype: DtypeName | torch.dtype, device: torch.device, *, cpu_facts: str | None = None) -> torch.dtype:
    """The dtype to load in; see `load_model`. `cpu_facts` is the text of /proc/cpuinfo (read if None)."""
    if isinstance(dtype, torch.dtype):
        if dtype not in _DTYPES.values():
            raise BackboneError(f"dtype {dtype} is not supported; use one of {', '.join(_DTYPES)} or auto")
        return dtype
    if dtype != "auto":
        if dtype not in _DTYPES:
            raise BackboneError(f"there is no dtype '{dtype}'; use one of {', '.join(_DTYPES)} or auto")
        return _DTYPES[dtype]
    if device.type == "cuda":
        return torch.bfloat16
    flags = set((_read_cpu_facts() if cpu_facts is None else cpu_facts).split())
    return torch.bfloat16 if device.type == "cpu" and flags & {"amx_bf16", "avx512_bf16"} else torch.float32


def _read_cpu_facts() -> str:
    try:
        return Path("/proc/cpuinfo").read_text("utf-8")
    except OSError:  # not Linux: nothing is known, so the safe choice is made
        return ""


def read_config(folder: Path) -> PreTrainedConfig:
    """A model folder's config. Raises BackboneError for one that is not understood, or not supported."""
    load: Any = AutoConfig.from_pretrained
    try:
        config: PreTrainedConfig = load(folder, local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        raise BackboneError(f"{folder}/config.json is not a model config transformers knows: {error}") from error
    supported(config)
    return config


def _load_weights(folder: Path, config: PreTrainedConfig, dtype: torch.dtype) -> PreTrainedModel:
    load: Any = AutoModelForCausalLM.from_pretrained
    try:
        with _no_bars():
            model, facts = load(
                folder,
                config=config,
                dtype=dtype,
                local_files_only=True,
                use_safetensors=True,
                output_loading_info=True,
            )
    except (OSError, ValueError, RuntimeError, KeyError, SafetensorError) as error:
        raise BackboneError(f"the weights in {folder} cannot be loaded: {error}; fetch or copy them again") from error
    if absent := sorted(facts["missing_keys"]):
        raise BackboneError(
            f"{folder} lacks {len(absent)} weights of a {config.model_type} model, among them {absent[0]}; "
            "the folder is incomplete or belongs to another model"
        )
    loaded: PreTrainedModel = model
    return loaded


@contextmanager
def _no_bars() -> Iterator[None]:
    """transformers draws a bar for every load, on a terminal or not; a load takes about a second."""
    previous = transformers_logging.set_tqdm_hook(lambda make, args, options: make(*args, **options, disable=True))
    try:
        yield
    finally:
        transformers_logging.set_tqdm_hook(previous)
