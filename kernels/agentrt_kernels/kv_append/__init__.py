"""Rows of keys and base values into their slots."""

from agentrt_kernels.kv_append.reference import Target, kv_append

__all__ = ["Target", "kv_append"]
