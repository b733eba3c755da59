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
from safetensors.torch import save_file
from torch import nn
from transformers import PreTrainedModel

from agentrt.errors import AdapterError, UsageError
from agentrt.model import shared_context
from agentrt.model.peft_folder import check_adapter, read_start

WEIGHTS_FILE: Final = "adapter_model.safetensors"  # peft's own file name

_OWN: Final = "default"
_OTHER: Final = "other"

Context = Literal["own", "other_lr", "other", "neutral_lr", "neutral"]
"""Who processed the context that a role reads, and whether the role's own low-rank term is added to its values:
itself (non_shared); another role, with the term (pre_lr_shared) or without (full_shared); nobody, with the term
(rebase_shared) or without (alora), and then nobody's are the role's own earlier turns too."""


@dataclass(frozen=True)
class LoraSettings:
    """Shape of the adapter: `targets` are projection names as peft takes them; the scaling is alpha / rank.

    shared_a: A stays as `seed` draws it, and only B is trained. So all adapters of one seed and shape have the same A,
        exactly, and need not be trained together (base_lr_shared).
    invocation: the tokens that activate the adapter, for activated LoRA (alora); peft's `alora_invocation_tokens`.
    """

    rank: int = 8
    alpha: int = 16
    targets: tuple[str, ...] = ("q_proj", "v_proj")
    shared_a: bool = False
    invocation: tuple[int, ...] = ()


class TrainableAdapter:
    """`backbone` gets LoRA layers in place (fp32 weights, whatever its own dtype) and is frozen apart from them.

    `base_name` is the backbone's public name: it becomes `base_model_name_or_path` of the saved adapter, so that no
    folder of this machine does. A is drawn from `seed`, B is zero: at first the adapter changes nothing.
    `other` is the folder of another role's adapter, for the contexts that one processes; `start` that of an adapter of
    the same base, shape and scaling to train on from. Raises AdapterError for a folder that does not fit.
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
        self._frozen = self._freeze_a() if settings.shared_a else []
        if start is not None:
            self._load_start(start, read_start(start, base_names=[base_name], scaling=settings.alpha / settings.rank))
        self._invocation = list(settings.invocation)
        self._has_other = other is not None
        self._peft.eval()  # nothing here behaves differently in training mode
        self._keys_adapted = "k_proj" in settings.targets
        self._base_name, self._device = base_name, backbone.device
        untyped: Any = backbone
        self._decoder: nn.Module = untyped.get_decoder()
        self._head: nn.Module = untyped.get_output_embeddings()

    @property
    def parameters(self) -> dict[str, nn.Parameter]:
        """The LoRA weights that are trained, by peft's name, in a fixed order."""
        weights = ((name, weight) for name, weight in self._peft.named_parameters() if f".{_OWN}." in name)
        return {name: weight for name, weight in weights if not (self._frozen and ".lora_A." in name)}

    def logits(self, token_ids: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """fp32 logits `[len(rows), vocab]` of `token_ids` `[sequences, tokens]`, padded on the right.

        `rows` index the flattened `[sequences * tokens]` positions; the head runs on no other. Under the causal rule a
        token never sees what is to its right, so padding needs no mask.
        """
        hidden = self._decoder(input_ids=token_ids.to(self._device), use_cache=False).last_hidden_state
        return self._logits(hidden.flatten(0, 1)[rows.to(self._device)])

    def shared_logits(
        self,
        token_ids: torch.Tensor,
        own: torch.Tensor,
        rows: torch.Tensor,
        context: Context,
        since: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """fp32 logits `[len(rows), vocab]` of one sequence `[tokens]` of which this adapter processes the rows `own`.

        `own` `[n]` are increasing positions; the other rows are processed as `context` says, without gradients.
        `rows` are positions, all of them among `own`. `since` `[n]` is where the turn of each own row starts: in a
        neutral context what lies before it is neutral, own rows of earlier turns too. Without it they stay own.
        Raises UsageError for a context of another adapter if there is none, and for low-rank terms of an adapter on
        keys, which are not added here.
        """
        if context == "own":
            return self.logits(token_ids[None], rows)
        if context.startswith("other") and not self._has_other:
            raise UsageError("a context of another role needs that role's adapter; name one, or train without sharing")
        token_ids, own, rows = (each.to(self._device) for each in (token_ids, own, rows))
        since = since.to(self._device) if since is not None and context.startswith("neutral") else None
        if since is not None:
            own, since = own[own >= since], since[own >= since]
        low_rank = context.endswith("_lr")
        if low_rank and self._keys_adapted:
            raise UsageError("low-rank terms of a shared context are for adapters that leave k_proj alone")
        with torch.no_grad(), self._path(context), shared_context.recording(self._decoder) as record:
            self._decoder(input_ids=token_ids[None], use_cache=False, context=record)
        reading = shared_context.Reading(record, own, low_rank, since)
        with shared_context.recording(self._decoder, reading.now):
            hidden = self._decoder(
                input_ids=token_ids[None, own], position_ids=own[None], use_cache=False, context=reading
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
        if self._invocation:
            saved["alora_invocation_tokens"] = self._invocation
        path.write_text(json.dumps(saved, indent=2, sort_keys=True) + "\n", encoding="utf-8")

    def _logits(self, hidden: torch.Tensor) -> torch.Tensor:
        picked: torch.Tensor = self._head(hidden)
        return picked.float()

    def _freeze_a(self) -> list[nn.Parameter]:
        """All A, rounded to what is saved, so that B is trained beside the A that is served."""
        frozen = [weight for name, weight in self._peft.named_parameters() if f".lora_A.{_OWN}." in name]
        for weight in frozen:
            weight.requires_grad_(False)
            weight.copy_(weight.to(torch.bfloat16))
        return frozen

    def _load_start(self, folder: Path, weights: dict[str, torch.Tensor]) -> None:
        try:
            ours = get_peft_model_state_dict(self._peft, adapter_name=_OWN, save_embedding_layers=False)
            if odd := ours.keys() ^ weights.keys():
                raise ValueError(f"{len(odd)} weights are in only one of the two, among them {min(odd)}")
            frozen = [name for name in sorted(weights) if self._frozen and ".lora_A." in name]
            if moved := [name for name in frozen if not torch.equal(ours[name], weights[name].float())]:
                raise ValueError(f"its {moved[0]} is not the A of this seed; with a shared A, give the seed it had")
            set_peft_model_state_dict(self._peft, weights, adapter_name=_OWN)
        except (ValueError, RuntimeError) as error:
            raise AdapterError(f"{folder} is not an adapter to train on from: {error}") from error

    @contextmanager
    def _path(self, context: Context) -> Iterator[None]:
        """Runs the model as the context's processor."""
        if context.startswith("neutral"):
            with self._peft.disable_adapter():
                yield
            return
        self._peft.set_adapter(_OTHER)
        try:
            yield
        finally:
            self._peft.set_adapter(_OWN)
            for weight in self._frozen:  # peft lets all of the adapter in use be trained
                weight.requires_grad_(False)


def _load_other(model: Any, folder: Path) -> None:
    check_adapter(folder.name, folder)
    try:
        model.load_adapter(str(folder), adapter_name=_OTHER)
    except (OSError, ValueError, RuntimeError) as error:
        raise AdapterError(f"{folder} is not an adapter of this backbone: {error}") from error
    model.set_adapter(_OWN)
