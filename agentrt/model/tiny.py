"""Tiny random models, adapters and a tokenizer for tests and dense references; no network.

Dimensions differ from one another wherever a family allows it, so that a mixed-up axis fails loudly.
"""

import copy
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, get_args

import tokenizers
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from agentrt.model.tokenizer import Tokenizer

TinyFamily = Literal["llama", "mistral", "ministral", "qwen2", "qwen3", "smollm3"]

TINY_FAMILIES: Final[tuple[TinyFamily, ...]] = get_args(TinyFamily)


def tiny_model(
    family: TinyFamily = "llama",
    *,
    seed: int = 0,
    layers: int = 3,
    vocab_size: int = 211,
    sliding_window: int | None = None,
    dtype: torch.dtype = torch.float32,
    **config: Any,
) -> PreTrainedModel:
    """A random causal LM of `family`, in eval mode on the CPU; the same seed gives the same weights.

    hidden 48, 6 query heads and 2 key/value heads of 8, MLP 91, 512 positions, untied head, unless `config`
    (arguments of the family's transformers config) says otherwise. Biases and norm weights are random too,
    and the logits spread over several units, so near ties in greedy decoding are rare. `sliding_window`
    (tokens): every layer of mistral slides; with ministral and qwen layer 0 keeps full attention; of smollm3
    only the layers without RoPE slide (layer 1 of 3); llama has none, and raises ValueError.
    """
    from_config: Any = AutoModelForCausalLM.from_config  # untyped in transformers
    arguments: dict[str, Any] = {
        "vocab_size": vocab_size,
        "hidden_size": 48,
        "intermediate_size": 91,
        "num_hidden_layers": layers,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "max_position_embeddings": 512,
        "tie_word_embeddings": False,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": None,
        **_family_arguments(family, layers, sliding_window),
        **config,
    }
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model: PreTrainedModel = from_config(CONFIG_MAPPING[family](**arguments), dtype=dtype)
    generator = torch.Generator().manual_seed(seed)
    for name, weight in sorted(model.named_parameters()):
        _fill(name, weight.data, generator)
    model.name_or_path = f"agentrt/tiny-{family}"  # peft records it as the base of an adapter
    model.train(False)
    model.requires_grad_(False)
    return model


def _family_arguments(family: TinyFamily, layers: int, sliding_window: int | None) -> dict[str, Any]:
    full_first = ["full_attention", *["sliding_attention"] * (layers - 1)]
    match family:
        case "llama":
            if sliding_window is not None:
                raise ValueError("llama has no sliding window; use mistral")
            return {}
        case "mistral":
            return {"sliding_window": sliding_window}
        case "ministral":
            if sliding_window is None:  # transformers builds the window's mask even where no layer slides
                return {"sliding_window": 512, "layer_types": ["full_attention"] * layers}
            return {"sliding_window": sliding_window, "layer_types": full_first}
        case "qwen2" | "qwen3":
            return {
                "use_sliding_window": sliding_window is not None,
                "sliding_window": sliding_window,
                "max_window_layers": 1,
            }
        case "smollm3":
            return {
                "no_rope_layers": [int(layer % 3 != 1) for layer in range(layers)],
                "use_sliding_window": sliding_window is not None,
                "sliding_window": sliding_window,
            }


def _fill(name: str, weight: torch.Tensor, generator: torch.Generator) -> None:
    noise = torch.randn(weight.shape, generator=generator)
    if weight.dim() == 1:
        weight.copy_(0.1 * noise + (0.0 if name.endswith("bias") else 1.0))
    elif "embed_tokens" in name:
        weight.copy_(noise)
    else:
        gain = 4.0 if "lm_head" in name else 1.4
        weight.copy_(noise * gain / weight.shape[1] ** 0.5)


def tiny_adapter(
    model: PreTrainedModel,
    folder: str | Path,
    *,
    r: int = 4,
    alpha: float = 10.0,
    targets: Sequence[str] = ("q_proj", "v_proj"),
    seed: int = 0,
    rank_pattern: Mapping[str, int] | None = None,
    alpha_pattern: Mapping[str, float] | None = None,
    use_rslora: bool = False,
    zero_b: bool = False,
    **config: Any,
) -> Path:
    """Write a peft LoRA folder for `model` with random A and B (B zero where `zero_b`) and return its path.

    `targets` are module names as peft takes them; `config` goes to `LoraConfig` (e.g. `layers_to_transform`).
    `model` stays untouched. By default alpha / r is not 1, so a scaling applied twice or not at all is seen.
    """
    lora = LoraConfig(
        r=r,
        lora_alpha=alpha,
        target_modules=list(targets),
        rank_pattern=dict(rank_pattern or {}),
        alpha_pattern=dict(alpha_pattern or {}),
        use_rslora=use_rslora,
        init_lora_weights=False,
        task_type="CAUSAL_LM",
        **config,
    )
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        # peft 0.21 still asks transformers for a property whose name has changed
        warnings.filterwarnings("ignore", message=".*is_gradient_checkpointing", category=FutureWarning)
        torch.manual_seed(seed)
        adapted = get_peft_model(copy.deepcopy(model), lora)
    generator = torch.Generator().manual_seed(seed)
    for name, weight in sorted(adapted.named_parameters()):
        if "lora_" not in name:
            continue
        spread = 0.5 / weight.shape[1] ** 0.5
        weight.data.copy_(torch.randn(weight.shape, generator=generator) * spread)
        if zero_b and "lora_B" in name:
            weight.data.zero_()
    adapted.save_pretrained(str(folder), save_embedding_layers=False)
    return Path(folder)


def tiny_tokenizer(merges: Sequence[tuple[str, str]] = ()) -> Tokenizer:
    """A byte-level BPE tokenizer: ids 0 to 2 are special (<|endoftext|>, <|im_start|>, <|im_end|>), then 256 bytes.

    `merges` add one token each, spelled as byte-level BPE does (U+0120 is a space), e.g. ("I", "t"). The end of
    text is id 2. A model for it needs `vocab_size` of at least 259 + len(merges).
    """
    special = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
    letters = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    tokens = [*special, *letters, *(left + right for left, right in merges)]
    vocabulary = {token: token_id for token_id, token in enumerate(tokens)}
    backend = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocabulary, merges=list(merges)))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = tokenizers.decoders.ByteLevel()
    backend.add_special_tokens(list(special))
    return Tokenizer(backend.to_str(), eos_ids=[2])
