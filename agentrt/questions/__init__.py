"""Benchmark questions: one reader of their files, for evaluation and for training."""
