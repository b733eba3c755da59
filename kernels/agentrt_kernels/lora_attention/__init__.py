"""Attention over base values plus a low-rank value term, kept factored where that is cheaper."""

from agentrt_kernels.lora_attention.reference import Block, lora_attention, penalty

__all__ = ["Block", "lora_attention", "penalty"]
