"""Which backbones the engine can drive, and why others are refused. Reads configs only, no weights."""

from typing import Any, Final

from transformers import PreTrainedConfig

from agentrt.errors import BackboneError

FAMILIES: Final = ("llama", "mistral", "ministral", "qwen2", "qwen3", "smollm3")
"""`model_type` values that are tested: separate q, k, v, o projections, softmax attention, a KV head set per layer."""

_FUSED = "its q, k and v share one fused projection, which adapters per projection cannot wrap"
_SOFTCAP = "its attention logits are soft-capped"
_MLA = "it caches a latent instead of keys and values (multi-head latent attention)"
_HYBRID = "some of its layers keep a recurrent state instead of keys and values (linear attention)"

_REFUSED: Final[dict[str, str]] = {
    "phi3": _FUSED,
    "falcon": _FUSED,
    "gpt_neox": _FUSED,
    "gpt2": _FUSED,
    "bloom": _FUSED,
    "chatglm": _FUSED,
    "glm": "its MLP is fused and its RoPE covers half of a head",
    "gemma2": _SOFTCAP,
    "gpt_oss": "its attention has sinks",
    "gemma3n": "several of its layers share one layer's keys and values",
    "deepseek_v2": _MLA,
    "deepseek_v3": _MLA,
    "mamba": _HYBRID,
    "mamba2": _HYBRID,
    "jamba": _HYBRID,
    "lfm2": _HYBRID,
    "qwen3_next": _HYBRID,
}

_LENGTH_DEPENDENT_ROPE: Final = ("dynamic", "longrope")


def supported(config: PreTrainedConfig) -> None:
    """Return if the engine can drive a model of this config, else raise BackboneError with family and reason."""
    family = str(getattr(config, "model_type", "")) or type(config).__name__
    reason = _refused_feature(config) or _REFUSED.get(family)
    if reason is None and family not in FAMILIES:
        reason = "this family is not tested"
    if reason is not None:
        raise BackboneError(
            f"models of the family '{family}' are not supported: {reason}. Supported families: {', '.join(FAMILIES)}"
        )


def _refused_feature(config: Any) -> str | None:
    """The first feature of the config that the engine cannot drive, whatever the family is called."""
    layer_types = set(getattr(config, "layer_types", None) or ())
    rope = getattr(config, "rope_parameters", None) or {}
    if getattr(config, "quantization_config", None) is not None:
        return "its weights are quantised; use the unquantised weights, or a GGUF file, which is dequantised once"
    if getattr(config, "kv_lora_rank", None):
        return _MLA
    if getattr(config, "num_kv_shared_layers", None):
        return "several of its layers share one layer's keys and values"
    if getattr(config, "attn_logit_softcapping", None):
        return _SOFTCAP
    if "linear_attention" in layer_types or "conv" in layer_types or "mamba" in layer_types:
        return _HYBRID
    if other := layer_types - {"full_attention", "sliding_attention"}:
        return f"it has layers of the kind {', '.join(sorted(other))}"
    if getattr(config, "is_encoder_decoder", False):
        return "it is an encoder-decoder model; the engine runs decoder-only models"
    if any(hasattr(config, part) for part in ("text_config", "vision_config", "audio_config")):
        return "it is a multimodal model; use a text-only checkpoint"
    if rope.get("rope_type") in _LENGTH_DEPENDENT_ROPE:
        return f"its RoPE ({rope['rope_type']}) changes with the length, so cached keys would go stale"
    return None
