"""Drift: how far shared caches lie from an agent's own, and what that does to its next tokens."""
