"""A frozen backbone with one fresh LoRA adapter to train, built by peft. Knows nothing of roles, data or losses."""

import json
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from peft import LoraConfig, get_peft_model, get_peft_model_state_dict
from safetensors.torch import save_file
from torch import nn
from transformers import PreTrainedModel

WEIGHTS_FILE: Final = "adapter_model.safetensors"  # peft's own file name


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
    """

    def __init__(self, backbone: PreTrainedModel, base_name: str, settings: LoraSettings, seed: int = 0) -> None:
        backbone.requires_grad_(False)
        backbone.set_attn_implementation("sdpa")
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
        self._peft.eval()  # nothing here behaves differently in training mode
        self._base_name = base_name
        untyped: Any = backbone
        self._decoder: nn.Module = untyped.get_decoder()
        self._head: nn.Module = untyped.get_output_embeddings()

    @property
    def parameters(self) -> dict[str, nn.Parameter]:
        """The LoRA weights by peft's name, in a fixed order."""
        return {name: weight for name, weight in self._peft.named_parameters() if weight.requires_grad}

    def logits(self, token_ids: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """fp32 logits `[len(rows), vocab]` of `token_ids` `[sequences, tokens]`, padded on the right.

        `rows` index the flattened `[sequences * tokens]` positions; the head runs on no other. Under the causal rule a
        token never sees what is to its right, so padding needs no mask.
        """
        hidden = self._decoder(input_ids=token_ids, use_cache=False).last_hidden_state
        picked: torch.Tensor = self._head(hidden.flatten(0, 1)[rows])
        return picked.float()

    def save(self, folder: str | Path) -> None:
        """Write a peft folder: weights in bf16, config with sorted keys, so that equal training gives equal bytes."""
        target = Path(folder)
        target.mkdir(parents=True, exist_ok=True)
        weights = get_peft_model_state_dict(self._peft, save_embedding_layers=False)
        save_file(
            {name: weight.detach().to(torch.bfloat16).contiguous() for name, weight in sorted(weights.items())},
            target / WEIGHTS_FILE,
            metadata={"format": "pt"},
        )
        (target / WEIGHTS_FILE).chmod(0o644)  # safetensors writes files that only their owner may read
        config: LoraConfig = self._peft.peft_config["default"]
        config.save_pretrained(str(target))
        path = target / "adapter_config.json"
        saved = json.loads(path.read_text(encoding="utf-8"))
        saved |= {
            "base_model_name_or_path": self._base_name,
            "target_modules": sorted(saved["target_modules"]),
            "inference_mode": True,
        }
        path.write_text(json.dumps(saved, indent=2, sort_keys=True) + "\n", encoding="utf-8")
