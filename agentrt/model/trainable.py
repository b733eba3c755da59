"""A frozen backbone with one fresh LoRA adapter to train, built by peft. Knows nothing of roles, data or losses."""

import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import torch
from peft import LoraConfig, get_peft_model, get_peft_model_state_dict, set_peft_model_state_dict
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import PreTrainedModel

from agentrt.errors import AdapterError, UsageError
from agentrt.model import shared_context

WEIGHTS_FILE: Final = "adapter_model.safetensors"  # peft's own file name

_OWN: Final = "default"
_OTHER: Final = "other"

Context = Literal["own", "other_lr", "other", "neutral_lr"]
"""Who processed the context that a role reads, and whether the role's own low-rank term is added to its values:
itself (non_shared); another role, with the term (pre_lr_shared) or without (full_shared); nobody (rebase_shared)."""


@dataclass(frozen=True)
class LoraSettings:
    """Shape of the adapter: `targets` are projection names as peft takes them; the scaling is alpha / rank."""

    rank: int = 8
    alpha: int = 16
    targets: tuple[str, ...] = ("q_proj", "v_proj")


class TrainableAdapter:
    """`backbone` gets LoRA layers in place (fp32 weights, whatever its own dtype) and is frozen apart from them.

    `base_name` is the backbone's public name: it becomes `base_model_name_or_path` of the saved adapter, so that no
    folder of this machine does. A is drawn from `seed`, B is zero: at first the adapter changes nothing.
    `other` is the folder of another role's adapter, for the contexts that one processes; `start` that of an adapter of
    the same shape to train on from. Raises AdapterError for a folder that does not fit.
    """

    def __init__(
        self,
        backbone: PreTrainedModel,
        base_name: str,
        settings: LoraSettings,
        seed: int = 0,
        *,
        other: Path | None = None,
        start: Path | None = None,
    ) -> None:
        shared_context.register()
        backbone.requires_grad_(False)
        backbone.set_attn_implementation(shared_context.NAME)
        config = LoraConfig(
            r=settings.rank,
            lora_alpha=settings.alpha,
            target_modules=list(settings.targets),
            lora_dropout=0.0,
            bias="none",
            task_type="CAUSAL_LM",
        )
        with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
            # peft 0.21 asks transformers 5.24 for an attribute it has renamed
            warnings.filterwarnings("ignore", message=".*is_gradient_checkpointing", category=FutureWarning)
            torch.manual_seed(seed)
            self._peft: Any = get_peft_model(backbone, config)
            if other is not None:
                _load_other(self._peft, other)
        if start is not None:
            _load_start(self._peft, start)
        self._has_other = other is not None
        self._peft.eval()  # nothing here behaves differently in training mode
        self._keys_adapted = "k_proj" in settings.targets
        self._base_name = base_name
        untyped: Any = backbone
        self._decoder: nn.Module = untyped.get_decoder()
        self._head: nn.Module = untyped.get_output_embeddings()

    @property
    def parameters(self) -> dict[str, nn.Parameter]:
        """The LoRA weights by peft's name, in a fixed order."""
        return {name: weight for name, weight in self._peft.named_parameters() if f".{_OWN}." in name}

    def logits(self, token_ids: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """fp32 logits `[len(rows), vocab]` of `token_ids` `[sequences, tokens]`, padded on the right.

        `rows` index the flattened `[sequences * tokens]` positions; the head runs on no other. Under the causal rule a
        token never sees what is to its right, so padding needs no mask.
        """
        hidden = self._decoder(input_ids=token_ids, use_cache=False).last_hidden_state
        return self._logits(hidden.flatten(0, 1)[rows])

    def shared_logits(
        self, token_ids: torch.Tensor, own: torch.Tensor, rows: torch.Tensor, context: Context
    ) -> torch.Tensor:
        """fp32 logits `[len(rows), vocab]` of one sequence `[tokens]` of which this adapter processes the rows `own`.

        `own` `[n]` are increasing positions; the other rows are processed as `context` says, without gradients.
        `rows` are positions, all of them among `own`. Raises UsageError for a context of another adapter if there is
        none, and for an adapter of keys, whose low-rank term no scheme adds here.
        """
        if context == "own":
            return self.logits(token_ids[None], rows)
        if context.startswith("other") and not self._has_other:
            raise UsageError("a context of another role needs that role's adapter; name one, or train without sharing")
        if self._keys_adapted:
            raise UsageError("training on shared contexts is for adapters that leave k_proj alone")
        with torch.no_grad(), self._path(context), shared_context.recording(self._decoder) as record:
            self._decoder(input_ids=token_ids[None], use_cache=False, context=record)
        hidden = self._decoder(
            input_ids=token_ids[None, own],
            position_ids=own[None],
            use_cache=False,
            context=shared_context.Reading(record, own, low_rank=context.endswith("_lr")),
        ).last_hidden_state[0]
        return self._logits(hidden[torch.searchsorted(own, rows)])

    def save(self, folder: str | Path) -> None:
        """Write a peft folder: weights in bf16, config with sorted keys, so that equal training gives equal bytes."""
        target = Path(folder)
        target.mkdir(parents=True, exist_ok=True)
        weights = get_peft_model_state_dict(self._peft, adapter_name=_OWN, save_embedding_layers=False)
        save_file(
            {name: weight.detach().to(torch.bfloat16).contiguous() for name, weight in sorted(weights.items())},
            target / WEIGHTS_FILE,
            metadata={"format": "pt"},
        )
        (target / WEIGHTS_FILE).chmod(0o644)  # safetensors writes files that only their owner may read
        config: LoraConfig = self._peft.peft_config[_OWN]
        config.save_pretrained(str(target))
        path = target / "adapter_config.json"
        saved = json.loads(path.read_text(encoding="utf-8"))
        saved |= {
            "base_model_name_or_path": self._base_name,
            "target_modules": sorted(saved["target_modules"]),
            "inference_mode": True,
        }
        path.write_text(json.dumps(saved, indent=2, sort_keys=True) + "\n", encoding="utf-8")

    def _logits(self, hidden: torch.Tensor) -> torch.Tensor:
        picked: torch.Tensor = self._head(hidden)
        return picked.float()

    @contextmanager
    def _path(self, context: Context) -> Iterator[None]:
        """Runs the model as the context's processor."""
        if context == "neutral_lr":
            with self._peft.disable_adapter():
                yield
            return
        self._peft.set_adapter(_OTHER)
        try:
            yield
        finally:
            self._peft.set_adapter(_OWN)


def _load_start(model: Any, folder: Path) -> None:
    try:
        weights = load_file(folder / WEIGHTS_FILE)
        missing = set(get_peft_model_state_dict(model, adapter_name=_OWN, save_embedding_layers=False)) ^ set(weights)
        if missing:
            raise ValueError(f"{len(missing)} weights are in only one of the two, among them {min(missing)}")
        set_peft_model_state_dict(model, weights, adapter_name=_OWN)
    except (OSError, ValueError, RuntimeError) as error:
        raise AdapterError(f"{folder} is not an adapter to train on from: {error}") from error


def _load_other(model: Any, folder: Path) -> None:
    try:
        model.load_adapter(str(folder), adapter_name=_OTHER)
    except (OSError, ValueError, RuntimeError) as error:
        raise AdapterError(f"{folder} is not an adapter of this backbone: {error}") from error
    model.set_adapter(_OWN)
