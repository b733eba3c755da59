"""Each row's own adapter term, added to a projection's base output."""

from agentrt_kernels.lora_shrink_expand.reference import Span, Weights, lora_shrink_expand

__all__ = ["Span", "Weights", "lora_shrink_expand"]
