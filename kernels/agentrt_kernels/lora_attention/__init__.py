"""Attention over base values plus a low-rank value term, kept factored where that is cheaper."""

from agentrt_kernels.lora_attention.reference import KeyRun, ValueTerm, lora_attention

__all__ = ["KeyRun", "ValueTerm", "lora_attention"]
