"""Attention over base values plus a low-rank value term, kept factored where that is cheaper."""

from agentrt_kernels.lora_attention.reference import HIDDEN, Block, lora_attention

__all__ = ["HIDDEN", "Block", "lora_attention"]
