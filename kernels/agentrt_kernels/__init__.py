"""Kernels of the cache engine, a folder each: a torch reference, a Triton version, the derivation."""
