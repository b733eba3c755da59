"""Replay of controlled traces: what a scheme costs, in rows, seconds and bytes. Knows no agents' texts and no tools."""
