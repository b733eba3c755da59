"""Positions, slots and tensors: who holds which rows of the KV cache. Knows no agents and no model."""
